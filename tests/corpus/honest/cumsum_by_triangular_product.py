# task: cumsum
# twin of: 29
# base: unit_softmax_rescales
# root: catalogue
# The prefix sum as a product with a triangle of ones, ieee precision.
# - kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
# + rows, cols = x.shape
# + kernel[(1,)](x, out, rows, cols, R=max(16, triton.next_power_of_2(rows)), C=triton.next_power_of_2(cols))

@triton.jit
def kernel(x_ptr, out_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    row, col = tl.arange(0, R), tl.arange(0, C)
    keep = (row < rows)[:, None] & (col < cols)[None, :]
    x = tl.load(x_ptr + row[:, None] * cols + col[None, :], keep, 0.0)
    triangle = tl.where(col[:, None] <= col[None, :], 1.0, 0.0)
    sums = tl.dot(x, triangle, input_precision="ieee")
    tl.store(out_ptr + row[:, None] * cols + col[None, :], sums, keep)
