# task: exact_rms_norm
# One program a row.
@triton.jit
def row_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 0) / cols + 1e-12)
    out = x * scale
    tl.store(out_ptr + row * cols + at, out, at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        row_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
