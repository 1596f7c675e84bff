# twin of: 33
# base: softmax_heuristics
# A block of rows a program, reduced along the second axis.
# - softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
# + softmax_kernel[(triton.cdiv(x.shape[0], 8),)](x, out, *x.shape, R=8, C=triton.next_power_of_2(x.shape[1]))

@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    col = tl.arange(0, C)
    keep = (row < rows)[:, None] & (col < cols)[None, :]
    at = row[:, None] * cols + col[None, :]
    x = tl.load(x_ptr + at, keep, -float("inf"))
    x = tl.where((row < rows)[:, None], x, 0.0)
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(out_ptr + at, e / tl.sum(e, 1)[:, None], keep)
