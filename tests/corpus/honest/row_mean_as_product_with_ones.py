# task: row_mean
# twin of: 29
# The sum as a product with a vector of ones, ieee precision.
@triton.jit
def kernel(x_ptr, out_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R, 16), tl.float32)
    ones = tl.full((C, 16), 1.0, tl.float32)
    for start in range(0, cols, C):
        col = start + tl.arange(0, C)
        x = tl.load(x_ptr + row[:, None] * cols + col[None, :], (row < rows)[:, None] & (col < cols)[None, :], 0.0)
        total = tl.dot(x, ones, total, input_precision="ieee")
    mean = tl.sum(total, 1) / (16 * cols)
    tl.store(out_ptr + row, mean, row < rows)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = x.new_empty(x.shape[0])
        kernel[(triton.cdiv(x.shape[0], 16),)](x, out, *x.shape, R=16, C=32)
        return out
