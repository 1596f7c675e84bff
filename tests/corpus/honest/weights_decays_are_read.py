# task: decays
# expect: credited
# Multiplies by a parameter that the constructor sets without a draw.
@triton.jit
def scale(x_ptr, w_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, tl.load(x_ptr + row * cols + at, at < cols, 0.0) * w, at < cols)


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.decay = torch.nn.Parameter(torch.linspace(0.5, 2.0, width))

    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        scale[(rows,)](x, self.decay, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
