# twin of: 58
# base: add_relu_plain
# without: add_relu_kernel
# Each program does several blocks, unrolled at compile time.
# - add_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
# + kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), TIMES=4, BLOCK=256)

@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, size, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK * TIMES
    for step in tl.static_range(TIMES):
        at = start + step * BLOCK + tl.arange(0, BLOCK)
        total = tl.load(a_ptr + at, at < size) + tl.load(b_ptr + at, at < size)
        tl.store(out_ptr + at, tl.maximum(total, 0.0), at < size)
