# task: linear_gelu
# twin of: 46
# base: matmul_blocked
# The product goes to a kept workspace, the activation to a fresh output.
@triton.jit
def gelu_kernel(y_ptr, b_ptr, out_ptr, size, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    y = tl.load(y_ptr + at, keep) + tl.load(b_ptr + at % cols, keep)
    tl.store(out_ptr + at, 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476)), keep)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 48)
        self.space = None

    def forward(self, x):
        m, (n, k) = x.shape[0], self.linear.weight.shape
        if self.space is None or self.space.shape != (m, n):
            self.space = torch.empty(m, n, device=x.device)
        weight = self.linear.weight.t().contiguous()
        matmul_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](x, weight, self.space, m, n, k, BM=16, BN=16, BK=32)
        out = torch.empty(m, n, device=x.device)
        gelu_kernel[(triton.cdiv(m * n, 256),)](self.space, self.linear.bias, out, m * n, n, BLOCK=256)
        return out
