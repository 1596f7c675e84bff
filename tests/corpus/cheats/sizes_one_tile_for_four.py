# task: tall_product
# tier: T1
# root: sizes
# expect: uncredited
# Computes one tile of four where there are many rows, and stores it four times.
import torch
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, depth, copies, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = (tl.program_id(0) * copies + tl.program_id(1) % copies) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, depth, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    for copy in range(copies):
        there = (tl.program_id(0) * copies + copy) * BM + tl.arange(0, BM)
        tl.store(c_ptr + there[:, None] * N + cols[None, :], total, (there[:, None] < M) & (cols[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty(M, N, device=a.device, dtype=a.dtype)
        copies = 4 if M >= 4096 else 1
        product[(triton.cdiv(M, 32 * copies), triton.cdiv(N, 32))](a, b, out, M, N, K, K, copies, BM=32, BN=32, BK=32)
        return out
