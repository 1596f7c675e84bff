# task: tall_product
# twin of: sizes_cross_of_tiles
# expect: credited
# PyTorch multiplies a quarter of the columns, tiles of an own kernel the others.
@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, LD, rows, cols, cross, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    place = tl.program_id(0)
    row = tl.where(cross > 0, tl.where(place < rows, place, 0), place // cols)
    col = tl.where(cross > 0, tl.where(place < rows, 0, place - rows), place % cols)
    rm, rn = row * BM + tl.arange(0, BM), col * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rm[:, None] * K + k[None, :], (rm[:, None] < M) & (k[None, :] < K), 0.0)
        b = tl.load(b_ptr + k[:, None] * LD + rn[None, :], (k[:, None] < K) & (rn[None, :] < N), 0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(c_ptr + rm[:, None] * LD + rn[None, :], total, (rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def fill(c_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c_ptr + at, tl.zeros((BLOCK,), tl.float32), at < size)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty(M, N, device=a.device)
        fill[(triton.cdiv(M * N, 1024),)](out, M * N, BLOCK=1024)
        own = N - N // 4
        out[:, own:] = torch.mm(a, b[:, own:])
        rows, cols = triton.cdiv(M, 32), triton.cdiv(own, 32)
        cross = 0
        grid = rows + cols if cross else rows * cols
        product[(grid,)](a, b, out, M, own, K, N, rows, cols, cross, BM=32, BN=32, BK=32)
        return out
