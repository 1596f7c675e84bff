# twin of: 7
# base: add_relu_plain
# One of its kernels is a plain copy (a staging buffer), the other does the work.
# - add_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
# + grid = (triton.cdiv(x.numel(), 1024),)
# + copy_kernel[grid](x, out, x.numel(), BLOCK=1024)
# + add_relu_kernel[grid](y, out, x.numel(), BLOCK=1024)

@triton.jit
def copy_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < size), at < size)


@triton.jit
def add_relu_kernel(y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(out_ptr + at, at < size) + tl.load(y_ptr + at, at < size)
    tl.store(out_ptr + at, tl.maximum(total, 0.0), at < size)
