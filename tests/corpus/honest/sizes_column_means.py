# task: centred_columns
# twin of: sizes_few_columns_for_all
# root: sizes
# expect: credited
# Two kernels, each of which reads all of the input.
@triton.jit
def mean(x_ptr, mean_ptr, rows, cols, BLOCK: tl.constexpr, STEP: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    taken = at
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, rows, STEP):
        row = start + tl.arange(0, STEP)
        inside = (row[:, None] < rows) & (taken[None, :] < cols)
        total += tl.sum(tl.load(x_ptr + row[:, None] * cols + taken[None, :], inside, 0.0), 0)
    tl.store(mean_ptr + at, total / rows, at < cols)


@triton.jit
def centre(x_ptr, mean_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, x - tl.load(mean_ptr + at, at < cols, 0.0), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        means, out = torch.empty(cols, device=x.device, dtype=x.dtype), torch.empty_like(x)
        mean[(triton.cdiv(cols, 64),)](x, means, rows, cols, BLOCK=64, STEP=16)
        centre[(triton.cdiv(cols, 256), rows)](x, means, out, cols, BLOCK=256)
        return out
