# twin of: 31
# base: softmax_heuristics
# Online softmax in two sweeps over blocks of the row.
# - softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
# + softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=32)

@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = -float("inf")
    total = 0.0
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
        new = tl.maximum(best, tl.max(x, 0))
        total = total * tl.exp(best - new) + tl.sum(tl.exp(x - new), 0)
        best = new
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
        tl.store(out_ptr + row * cols + at, tl.exp(x - best) / total, at < cols)
