# task: far_taps
# root: sizes
# expect: credited
# A launch for each tap of a long filter, adding to the output.
@triton.jit
def add(x_ptr, w_ptr, out_ptr, place, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + (at - 7 * place + cols) % cols, at < cols, 0.0)
    out = tl.load(out_ptr + row * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, out + tl.load(w_ptr + place) * x, at < cols)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.taps = torch.nn.Parameter(torch.randn(12))

    def forward(self, x):
        rows, cols = x.shape
        out = torch.zeros_like(x)
        for place in range(12):
            add[(rows,)](x, self.taps, out, place, cols, BLOCK=triton.next_power_of_2(cols))
        return out
