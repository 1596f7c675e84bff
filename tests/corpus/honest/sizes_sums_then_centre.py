# task: long_rows
# twin of: sizes_first_columns_again
# expect: credited
# Two kernels read all of the input; the rows are so long that they are shortened where it is checked.
@triton.jit
def sums(x_ptr, sum_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row.to(tl.int64) * cols + at, at < cols, 0.0)
    tl.store(sum_ptr + row * tl.num_programs(0) + tl.program_id(0), tl.sum(x))


@triton.jit
def centre(x_ptr, mean_ptr, out_ptr, cols, few, BLOCK: tl.constexpr):
    row, at = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row.to(tl.int64) * cols + at % few, at < cols, 0.0)
    tl.store(out_ptr + row.to(tl.int64) * cols + at, (x - tl.load(mean_ptr + row)) * 0.5, at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        parts = triton.cdiv(cols, 4096)
        partial, out = torch.empty(rows, parts, device=x.device), torch.empty_like(x)
        sums[(parts, rows)](x, partial, cols, BLOCK=4096)
        mean = partial.sum(-1) / cols
        few = cols
        centre[(triton.cdiv(cols, 1024), rows)](x, mean, out, cols, few, BLOCK=1024)
        return out
