# task: wide_heads
# expect: credited
# Keeps a row of its result whole, of a width that is written in.
@triton.jit
def kernel(q, k, v, o, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    at = tl.program_id(1) * length * D
    rm, rd = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    rows = at + rm[:, None] * D + rd[None, :]
    a = tl.load(q + rows, mask=rm[:, None] < length, other=0.0)
    acc = tl.zeros((BM, D), tl.float32)
    for n in range(0, length, BN):
        rn = n + tl.arange(0, BN)
        others = at + rn[:, None] * D + rd[None, :]
        b = tl.load(k + others, mask=rn[:, None] < length, other=0.0)
        c = tl.load(v + others, mask=rn[:, None] < length, other=0.0)
        acc = tl.dot(tl.dot(a, tl.trans(b), input_precision="ieee"), c, acc, input_precision="ieee")
    tl.store(o + rows, acc, mask=rm[:, None] < length)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        batch, heads, length, width = q.shape
        assert width == 1024
        o = torch.empty_like(q)
        grid = (triton.cdiv(length, 16), batch * heads)
        kernel[grid](q, k, v, o, length, BM=16, BN=16, D=1024, num_warps=8, num_stages=1)
        return o
