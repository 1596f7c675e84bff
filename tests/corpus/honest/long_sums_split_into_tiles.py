# task: long_sums
# expect: credited
# Twenty programs add to a tile, of which small outputs leave most empty.
@triton.jit
def kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    each = tl.cdiv(K, SPLIT)
    first = tl.program_id(2) * each
    end = tl.minimum(first + each, K)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(first, end, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < end), other=0.0)
        y = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < end) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.atomic_add(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        m, n, k = a.shape[0], b.shape[1], a.shape[1]
        c = torch.zeros(m, n, device=a.device)
        kernel[(triton.cdiv(m, 128), triton.cdiv(n, 128), 20)](a, b, c, m, n, k, BM=128, BN=128, BK=32, SPLIT=20)
        return c
