# task: packed_weights
# root: sizes
# expect: credited
# Unpacks two weights a number, and multiplies each half: less arithmetic than the reference, of which all products.
@triton.jit
def product(x_ptr, w_ptr, s_ptr, out_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K // 2, BK):
        k = start + tl.arange(0, BK)
        w = tl.load(w_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K // 2) & (cols[None, :] < N), 0)
        at, live = rows[:, None] * K + 2 * k[None, :], (rows[:, None] < M) & (k[None, :] < K // 2)
        total = tl.dot(tl.load(x_ptr + at, live, 0.0), ((w & 15) - 8).to(tl.float16), total)
        total = tl.dot(tl.load(x_ptr + at + 1, live, 0.0), ((w >> 4) - 8).to(tl.float16), total)
    scaled = total * tl.load(s_ptr + cols, cols < N, 0.0)[None, :]
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], scaled, (rows[:, None] < M) & (cols[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, x, w, s):
        (M, K), N = x.shape, w.shape[1]
        out = torch.empty(M, N, device=x.device, dtype=x.dtype)
        product[(triton.cdiv(M, 64), triton.cdiv(N, 64))](x, w, s, out, M, N, K, BM=64, BN=64, BK=32)
        return out
