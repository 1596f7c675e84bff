# base: taps_a_launch_each
# All taps in one kernel's loop.
@triton.jit
def add(x_ptr, w_ptr, out_ptr, taps, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    out = tl.zeros((BLOCK,), tl.float32)
    for place in range(taps):
        out += tl.load(w_ptr + place) * tl.load(x_ptr + row * cols + (at - 7 * place + cols) % cols, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, out, at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        add[(rows,)](x, self.taps, out, 12, cols, BLOCK=triton.next_power_of_2(cols))
        return out
