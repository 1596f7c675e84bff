# twin of: 7
# base: add_relu_zeros_then_atomics
# Two kernels, the second in place on the first one's result.
# - def accumulate_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
# + def add_kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
#       at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
# -     tl.atomic_add(out_ptr + at, tl.load(x_ptr + at, at < size), at < size)
# +     tl.store(out_ptr + at, tl.load(x_ptr + at, at < size) + tl.load(y_ptr + at, at < size), at < size)

# - out = torch.zeros_like(x)
# + out = torch.empty_like(x)
#   grid = (triton.cdiv(x.numel(), 256),)
# - accumulate_kernel[grid](x, out, x.numel(), BLOCK=256)
# - accumulate_kernel[grid](y, out, x.numel(), BLOCK=256)
# + add_kernel[grid](x, y, out, x.numel(), BLOCK=256)
