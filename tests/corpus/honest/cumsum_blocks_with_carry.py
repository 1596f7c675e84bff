# task: cumsum
# twin of: 32
# base: softmax_heuristics
# without: softmax_kernel
# Blocks along the row with a running carry.
# - softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
# + scan_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=32)

@triton.jit
def scan_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = 0.0
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        tl.store(out_ptr + row * cols + at, tl.cumsum(x, 0) + carry, at < cols)
        carry += tl.sum(x, 0)
