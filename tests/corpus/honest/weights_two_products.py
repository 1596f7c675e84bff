# task: folded_linears
# expect: credited
# Two products in one after another, with both weights from the state dict.
@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], rows[:, None] < M, 0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :])
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, rows[:, None] < M)


def multiply(a, b):
    (rows, depth), cols = a.shape, b.shape[1]
    out = torch.empty(rows, cols, device=a.device, dtype=a.dtype)
    product[(triton.cdiv(rows, 64), cols // 64)](a, b, out, rows, cols, depth, BM=64, BN=64, BK=32)
    return out


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Parameter(torch.randn(width, width) / width**0.5)
        self.second = torch.nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        return multiply(multiply(x, self.first), self.second)
