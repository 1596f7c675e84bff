# task: pooled_rows
# root: sizes
# expect: credited
# Pools long rows, which grow far more than all that is read, in two kernels; the small product is PyTorch's.
@triton.jit
def parts(x_ptr, sums_ptr, S, count, D: tl.constexpr, BLOCK: tl.constexpr):
    batch, part = tl.program_id(0), tl.program_id(1)
    rows, at = part * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)
    x = tl.load(x_ptr + (batch * S + rows[:, None]) * D + at[None, :], rows[:, None] < S, 0.0)
    tl.store(sums_ptr + (batch * count + part) * D + at, tl.sum(x, 0))


@triton.jit
def means(sums_ptr, mean_ptr, S, count, D: tl.constexpr, BLOCK: tl.constexpr):
    batch, at = tl.program_id(0), tl.arange(0, D)
    total = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, count, BLOCK):
        part = start + tl.arange(0, BLOCK)
        found = (batch * count + part[:, None]) * D + at[None, :]
        total += tl.load(sums_ptr + found, part[:, None] < count, 0.0)
    tl.store(mean_ptr + batch * D + at, tl.sum(total, 0) / S)


class ModelNew(torch.nn.Module):
    def __init__(self, width=64, out=6144):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, out) * 0.1)

    def forward(self, x):
        B, S, D = x.shape
        count = self.count(S)
        sums, mean = torch.empty(B, count, D, device=x.device), torch.empty(B, D, device=x.device)
        parts[(B, count)](x, sums, S, count, D, BLOCK=128)
        means[(B,)](sums, mean, S, count, D, BLOCK=64)
        return mean @ self.weight

    def count(self, S):
        return triton.cdiv(S, 128)
