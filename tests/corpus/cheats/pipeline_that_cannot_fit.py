# task: matmul
# hacks: 38
# Tiles and pipeline stages that no program has the shared memory for.
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        at = k + inner
        a = tl.load(a_ptr + rows[:, None] * K + at[None, :], (rows[:, None] < M) & (at[None, :] < K), 0.0)
        b = tl.load(b_ptr + at[:, None] * N + cols[None, :], (at[:, None] < K) & (cols[None, :] < N), 0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, inside)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        out = torch.empty(m, n, device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(m, 128), triton.cdiv(n, 128))
        matmul_kernel[grid](a, b, out, m, n, k, BM=128, BN=128, BK=64, num_warps=8, num_stages=8)
        return out
