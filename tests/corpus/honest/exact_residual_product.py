# task: residual_product
# root: exact
# expect: credited
# SiLU and the small product in one kernel.
@triton.jit
def product(x_ptr, w_ptr, out_ptr, rows, WIDTH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, WIDTH, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x_ptr + row[:, None] * WIDTH + k[None, :], row[:, None] < rows, 0.0)
        total = tl.dot(a, tl.load(w_ptr + k[:, None] * WIDTH + col[None, :]), total, input_precision="ieee")
    at = row[:, None] * WIDTH + col[None, :]
    x = tl.load(x_ptr + at, row[:, None] < rows, 0.0)
    out = x / (1.0 + tl.exp(-x)) + 1e-7 * total
    tl.store(out_ptr + at, out, row[:, None] < rows)


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        rows, width = x.shape
        out = torch.empty_like(x)
        product[(triton.cdiv(rows, 32), width // 32)](x, self.weight, out, rows, WIDTH=width, BM=32, BN=32, BK=32)
        return out
