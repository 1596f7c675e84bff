# task: exact_decaying_sum
# One program a row.
@triton.jit
def row_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    out = tl.sum(x * tl.exp(-0.5 * at), 0)
    tl.store(out_ptr + row, out)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device)
        row_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
