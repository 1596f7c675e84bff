# task: tall_norm
# root: sizes
# expect: credited
# Sums of squares first, then a second kernel that scales.
@triton.jit
def sums(x_ptr, s_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(s_ptr + row, tl.rsqrt(tl.sum(x * x) / cols + 1e-6))


@triton.jit
def scale(x_ptr, s_ptr, w_ptr, out_ptr, cols, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    y = x * tl.load(s_ptr + at // cols, at < n) * tl.load(w_ptr + at % cols, at < n)
    tl.store(out_ptr + at, y, at < n)


class ModelNew(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(cols))

    def forward(self, x):
        rows, cols = x.shape
        out, s = torch.empty_like(x), torch.empty(rows, device=x.device)
        sums[(rows,)](x, s, cols, BLOCK=triton.next_power_of_2(cols))
        scale[(triton.cdiv(x.numel(), 1024),)](x, s, self.weight, out, cols, x.numel(), BLOCK=1024)
        return out
