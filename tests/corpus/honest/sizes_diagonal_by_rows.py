# task: diagonal_product
# root: sizes
# expect: credited
# A product with a diagonal matrix, of lower order than PyTorch's.
@triton.jit
def scaled(a, b, out, N, M, depth, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    factor = tl.load(a + row)
    for start in range(0, depth, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + row * M + at, factor * tl.load(b + row * M + at, at < M, 0.0), at < M)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        N, M = b.shape
        out = torch.empty_like(b)
        scaled[(N,)](a, b, out, N, M, M, BLOCK=256)
        return out
