# twin of: 5
# base: softmax_plain
# Two rows a program, as a block.
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + softmax_kernel[(triton.cdiv(rows, 2),)](x, out, rows, cols, R=2, C=triton.next_power_of_2(cols))

@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    col = tl.arange(0, C)[None, :]
    keep = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * cols + col, keep, -float("inf"))
    x = tl.where(row < rows, x, 0.0)
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(out_ptr + row * cols + col, e / tl.sum(e, 1)[:, None], keep)
