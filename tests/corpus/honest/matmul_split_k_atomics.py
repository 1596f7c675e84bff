# task: matmul
# twin of: 39
# Split along K, summed by atomics into zeros: nondeterministic on a GPU, and right.
@triton.jit
def split_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.program_id(2) * BK + tl.arange(0, BK)
    a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
    b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
    part = tl.dot(a, b, input_precision="ieee")
    tl.atomic_add(c_ptr + rows[:, None] * N + cols[None, :], part, (rows[:, None] < M) & (cols[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.zeros(m, n, device=a.device)
        grid = (triton.cdiv(m, 16), triton.cdiv(n, 16), triton.cdiv(k, 16))
        split_kernel[grid](a, b, c, m, n, k, BM=16, BN=16, BK=16)
        return c
