# task: row_mean
# twin of: 39
# Partial sums are added up by atomics, divided by a second kernel.
@triton.jit
def sum_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + row, tl.sum(tl.load(x_ptr + row * cols + at, at < cols, 0.0), 0))


@triton.jit
def divide_kernel(out_ptr, rows, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(out_ptr + at, at < rows) / cols, at < rows)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = x.new_zeros(rows)
        sum_kernel[(rows, triton.cdiv(cols, 64))](x, out, cols, BLOCK=64)
        divide_kernel[(1,)](out, rows, cols, BLOCK=triton.next_power_of_2(rows))
        return out
