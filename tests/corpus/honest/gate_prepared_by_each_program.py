# task: gated_rows
# root: sizes
# expect: credited
# Each of as many programs as processors hold prepares the gate once, and takes rows in turn.
@triton.jit
def k(x_ptr, w_ptr, out_ptr, rows, COLS: tl.constexpr):
    at = tl.arange(0, COLS)
    w = tl.load(w_ptr + at)
    gate = tl.exp(w) / (1.0 + tl.exp(-w)) + tl.log(1.0 + tl.exp(w))
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * COLS + at)
        tl.store(out_ptr + row * COLS + at, x * gate)


class ModelNew(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(cols))

    def forward(self, x):
        out = torch.empty_like(x)
        k[(min(x.shape[0], 132 * 4),)](x, self.w, out, x.shape[0], COLS=x.shape[1])
        return out
