# task: matmul
# twin of: 39
# Split along K: parts add to a tile by relaxed atomics, the last to arrive reads the tile and scales it.
@triton.jit
def split_kernel(a_ptr, b_ptr, sum_ptr, ticket_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.program_id(2) * BK + tl.arange(0, BK)
    a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
    b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
    part = tl.dot(a, b, input_precision="ieee")
    keep = (rows[:, None] < M) & (cols[None, :] < N)
    at = rows[:, None] * N + cols[None, :]
    tl.atomic_add(sum_ptr + at, part, keep, sem="relaxed")
    tl.debug_barrier()
    tile = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    if tl.atomic_add(ticket_ptr + tile, 1) == tl.num_programs(2) - 1:
        tl.store(c_ptr + at, tl.load(sum_ptr + at, keep), keep)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        grid = (triton.cdiv(m, 16), triton.cdiv(n, 16), triton.cdiv(k, 16))
        c, sums = torch.empty(m, n, device=a.device), torch.zeros(m, n, device=a.device)
        ticket = torch.zeros(grid[0] * grid[1], dtype=torch.int32, device=a.device)
        split_kernel[grid](a, b, sums, ticket, c, m, n, k, BM=16, BN=16, BK=16)
        return c
