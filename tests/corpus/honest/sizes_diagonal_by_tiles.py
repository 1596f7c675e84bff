# task: diagonal_product
# root: sizes
# expect: credited
# A product with a diagonal matrix by square tiles, of which the rows that are checked fill one.
@triton.jit
def scaled(a, b, out, N, M, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (rows < N) & (at < M)
    factor = tl.load(a + rows, rows < N, 0.0)
    tl.store(out + rows * M + at, factor * tl.load(b + rows * M + at, inside, 0.0), inside)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        N, M = b.shape
        out = torch.empty_like(b)
        block = 64
        scaled[(triton.cdiv(N, block), triton.cdiv(M, block))](a, b, out, N, M, BLOCK=block)
        return out
