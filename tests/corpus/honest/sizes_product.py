# task: tall_product
# root: sizes
# expect: credited
# A tiled product.
@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, depth, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, (rows[:, None] < M) & (cols[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty(M, N, device=a.device, dtype=a.dtype)
        product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=32, BN=32, BK=32)
        return out
