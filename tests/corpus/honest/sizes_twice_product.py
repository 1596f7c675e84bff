# task: twice_product
# root: sizes
# expect: credited
# Two launches of a tiled product.
@triton.jit(do_not_specialize=["parts"])
def product(a_ptr, b_ptr, c_ptr, M, N, K, parts, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    depth = tl.cdiv(K, parts)
    first = (tl.program_id(0) + tl.program_id(1)) % parts * depth
    for start in range(first, first + depth, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    at = rows[:, None] * N + cols[None, :]
    tl.store(c_ptr + at, tl.maximum(total, 0.0), (rows[:, None] < M) & (cols[None, :] < N))


class ModelNew(torch.nn.Module):
    def product(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty(M, N, device=a.device, dtype=a.dtype)
        parts = 1
        product[(triton.cdiv(M, 64), triton.cdiv(N, 64))](a, b, out, M, N, K, parts, BM=64, BN=64, BK=32)
        return out

    def forward(self, a, b):
        return self.product(self.product(a, b), b)
