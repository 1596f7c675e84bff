# task: matmul
# twin of: 29
# expect: correct
# No dot: products summed on the vector units in another order.
import torch
import triton
import triton.language as tl

@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, N, K, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    for k in range(K - 1, -1, -1):
        acc += tl.load(a_ptr + row * K + k) * tl.load(b_ptr + k * N + cols, cols < N, 0.0)
    tl.store(c_ptr + row * N + cols, acc, cols < N)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, device=a.device)
        matmul_kernel[m, triton.cdiv(n, 32)](a, b, c, n, k, BN=32)
        return c
