# task: mean_of_products
# twin of: 29
# expect: credited
# Sums of tiles of a product, then their mean.
@triton.jit
def product(a_ptr, b_ptr, part_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    part = tl.sum(tl.maximum(total, 0.0))
    tl.store(part_ptr + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), part)


@triton.jit
def mean(part_ptr, out_ptr, n, size, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(part_ptr + at, at < n, 0.0)
    tl.store(out_ptr, tl.sum(total, 0) / size)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        down, across = triton.cdiv(M, 64), triton.cdiv(N, 64)
        part, out = torch.empty(down * across, device=a.device), torch.empty(1, device=a.device)
        product[(down, across)](a, b, part, M, N, K, BM=64, BN=64, BK=32)
        mean[(1,)](part, out, down * across, M * N, BLOCK=256)
        return out
