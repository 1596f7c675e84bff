# task: below_the_maximum
# twin of: 26
# Computes what is always zero, into a tensor that PyTorch filled with zeros.
@triton.jit
def below_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    tl.store(out_ptr + row * cols + at, tl.maximum(x - tl.max(x, 0), 0.0), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.zeros_like(x)
        below_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
