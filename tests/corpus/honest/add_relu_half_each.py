# twin of: 36
# base: add_relu_plain
# without: add_relu_kernel
# Two launches, each does half of the elements through a view.
# - add_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
# + middle = x.numel() // 2
# + for part in (slice(0, middle), slice(middle, None)):
# +     size = x[part].numel()
# +     kernel[(triton.cdiv(size, 512),)](x[part], y[part], out[part], size, BLOCK=512)

@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(a_ptr + at, at < size) + tl.load(b_ptr + at, at < size)
    tl.store(out_ptr + at, tl.maximum(total, 0.0), at < size)
