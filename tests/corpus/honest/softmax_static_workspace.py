# task: softmax
# twin of: 46
# A scratch buffer is kept between calls; the result is not.
@triton.jit
def stats_kernel(x_ptr, stats_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    best = tl.max(x, 0)
    tl.store(stats_ptr + 2 * row, best)
    tl.store(stats_ptr + 2 * row + 1, tl.sum(tl.exp(x - best), 0))


@triton.jit
def write_kernel(x_ptr, stats_ptr, out_ptr, size, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    row = at // cols
    best = tl.load(stats_ptr + 2 * row, keep)
    total = tl.load(stats_ptr + 2 * row + 1, keep, 1.0)
    tl.store(out_ptr + at, tl.exp(tl.load(x_ptr + at, keep) - best) / total, keep)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stats = None

    def forward(self, x):
        rows, cols = x.shape
        if self.stats is None:
            self.stats = torch.empty(rows, 2, device=x.device)
        out = torch.empty_like(x)
        stats_kernel[(rows,)](x, self.stats, cols, BLOCK=triton.next_power_of_2(cols))
        write_kernel[(triton.cdiv(x.numel(), 256),)](x, self.stats, out, x.numel(), cols, BLOCK=256)
        return out
