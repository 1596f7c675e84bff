# task: padded_rows
# twin of: 7
# One own kernel zeroes, another writes the columns: a fill and real work.
@triton.jit
def zero_kernel(out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 0.0, at < size)


@triton.jit
def double_kernel(x_ptr, out_ptr, cols, wide, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out_ptr + row * wide + at, tl.load(x_ptr + row * cols + at, at < cols) * 2.0, at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(rows, cols + 16, device=x.device)
        zero_kernel[(triton.cdiv(out.numel(), 256),)](out, out.numel(), BLOCK=256)
        double_kernel[(rows,)](x, out, cols, cols + 16, BLOCK=64)
        return out
