# twin of: 36
# base: add_relu_plain
# A grid-stride loop covers everything with few programs.
# - add_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
# + add_relu_kernel[(4,)](x, y, out, x.numel(), BLOCK=128)

@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, size, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        total = tl.load(x_ptr + at, at < size) + tl.load(y_ptr + at, at < size)
        tl.store(out_ptr + at, tl.maximum(total, 0.0), at < size)
