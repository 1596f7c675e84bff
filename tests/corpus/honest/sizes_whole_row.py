# task: tall_norm
# root: sizes
# expect: credited
# A row in one block, its size by next_power_of_2.
@triton.jit
def norm(x_ptr, w_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    y = x * tl.rsqrt(tl.sum(x * x) / cols + 1e-6) * tl.load(w_ptr + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, y, at < cols)


class ModelNew(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(cols))

    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
