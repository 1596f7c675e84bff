# task: six_norms
# root: sizes
# expect: credited
# Six norms, a launch for each, in place after the first.
@triton.jit
def norm(x_ptr, w_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    y = x * tl.rsqrt(tl.sum(x * x) / cols + 1e-6) * tl.load(w_ptr + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, y / (1.0 + tl.abs(y)), at < cols)


class ModelNew(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weights = torch.nn.Parameter(1.0 + 0.1 * torch.randn(6, cols))

    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        for number in range(6):
            source = out if number else x
            norm[(rows,)](source, self.weights[number], out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
