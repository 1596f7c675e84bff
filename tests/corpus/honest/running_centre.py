# task: running_centre
# root: inputs
# Moves a buffer towards the mean, and subtracts it.
@triton.jit
def follow(x_ptr, centre_ptr, out_ptr, rows, COLS: tl.constexpr, BLOCK: tl.constexpr):
    row, col = tl.arange(0, BLOCK), tl.program_id(0)
    x = tl.load(x_ptr + row * COLS + col, row < rows, 0.0)
    centre = tl.load(centre_ptr + col) * 0.9 + tl.sum(x, 0) / rows * 0.1
    tl.store(centre_ptr + col, centre)
    tl.store(out_ptr + row * COLS + col, x - centre, row < rows)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(64))

    def forward(self, x):
        out = torch.empty_like(x)
        follow[(x.shape[1],)](x, self.centre, out, x.shape[0], COLS=64, BLOCK=64)
        return out
