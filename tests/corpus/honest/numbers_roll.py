# task: rolled_by_number
# expect: credited
# Rolls by a number of columns that is an argument, and negates if asked to.
@triton.jit
def rolled(x_ptr, out_ptr, cols, shift, sign, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    other = tl.load(x_ptr + row * cols + (at - shift + cols) % cols, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, sign * (x + other), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x, shift: int, inverse: bool):
        rows, cols = x.shape
        out = torch.empty_like(x)
        sign = -1.0 if inverse else 1.0
        rolled[(rows,)](x, out, cols, shift % cols, sign, BLOCK=triton.next_power_of_2(cols))
        return out
