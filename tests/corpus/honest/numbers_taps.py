# task: taps_in_a_list
# expect: credited
# A short filter whose taps are a list of numbers.
@triton.jit
def filtered(x_ptr, out_ptr, cols, a, b, c, d, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < cols
    total = a * tl.load(x_ptr + row * cols + at, mask, 0.0)
    total += b * tl.load(x_ptr + row * cols + (at - 1 + cols) % cols, mask, 0.0)
    total += c * tl.load(x_ptr + row * cols + (at - 2 + cols) % cols, mask, 0.0)
    total += d * tl.load(x_ptr + row * cols + (at - 3 + cols) % cols, mask, 0.0)
    tl.store(out_ptr + row * cols + at, total, mask)


class ModelNew(torch.nn.Module):
    def forward(self, x, taps):
        rows, cols = x.shape
        out = torch.empty_like(x)
        filtered[(rows,)](x, out, cols, *taps, BLOCK=triton.next_power_of_2(cols))
        return out
