# task: linear_gelu
# twin of: 25
# expect: correct
# The linear layer is a module of its own inside a submodule; its forward is never called.
import torch
import triton
import triton.language as tl

@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + inner
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc, (rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def gelu_kernel(y_ptr, b_ptr, out_ptr, size, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    y = tl.load(y_ptr + at, keep) + tl.load(b_ptr + at % cols, keep)
    tl.store(out_ptr + at, 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476)), keep)


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(48, 64))
        self.bias = torch.nn.Parameter(torch.empty(48))
        torch.nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        torch.nn.init.uniform_(self.bias, -0.125, 0.125)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = Inner()

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        m, (n, k) = x.shape[0], weight.shape
        y = torch.empty(m, n, device=x.device)
        matmul_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](
            x, weight.t().contiguous(), y, m, n, k, BM=16, BN=16, BK=32
        )
        out = torch.empty_like(y)
        gelu_kernel[(triton.cdiv(m * n, 256),)](y, bias, out, m * n, n, BLOCK=256)
        return out
