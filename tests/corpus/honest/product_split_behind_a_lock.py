# task: locked_product
# root: races
# expect: credited
# Programs that share a tile add to it behind a lock; the first one stores.
@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, lock_ptr, M, N, K, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    pid, z = tl.program_id(0), tl.program_id(1)
    across = tl.cdiv(N, BN)
    rows = pid // across * BM + tl.arange(0, BM)
    cols = pid % across * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(z * BK, K, BK * SPLIT):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    to = c_ptr + rows[:, None] * N + cols[None, :]
    keep = (rows[:, None] < M) & (cols[None, :] < N)
    count_ptr = lock_ptr + tl.num_programs(0)
    while tl.atomic_cas(lock_ptr + pid, 0, 1) == 1:
        pass
    count = tl.load(count_ptr + pid)
    if count == 0:
        tl.store(to, total, keep)
        tl.atomic_xchg(count_ptr + pid, 1)
    else:
        tl.store(to, total + tl.load(to, keep), keep)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + pid, 0)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty(M, N, device=a.device)
        tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
        locks = torch.zeros(2 * tiles, dtype=torch.int32, device=a.device)
        product[(tiles, 8)](a, b, out, locks, M, N, K, SPLIT=8, BM=64, BN=64, BK=32)
        return out
