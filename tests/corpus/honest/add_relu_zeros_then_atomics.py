# twin of: 60
# base: add_relu_atomic_max
# without: kernel
# Accumulates into zeros by atomics, then clamps in place.
# - kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
# + grid = (triton.cdiv(x.numel(), 256),)
# + accumulate_kernel[grid](x, out, x.numel(), BLOCK=256)
# + accumulate_kernel[grid](y, out, x.numel(), BLOCK=256)
# + relu_kernel[grid](out, x.numel(), BLOCK=256)

@triton.jit
def accumulate_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + at, tl.load(x_ptr + at, at < size), at < size)


@triton.jit
def relu_kernel(out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.maximum(tl.load(out_ptr + at, at < size), 0.0), at < size)
