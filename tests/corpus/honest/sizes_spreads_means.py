# task: spread_means
# root: sizes
# expect: credited
# A row's mean in all of its columns.
@triton.jit
def means(x_ptr, out_ptr, cols, wide, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mean = tl.sum(tl.load(x_ptr + row * cols + at, at < cols, 0.0)) / cols
    tl.store(out_ptr + row * wide + at, mean + tl.zeros((BLOCK,), tl.float32), at < wide)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        means[(rows,)](x, out, cols, cols, BLOCK=triton.next_power_of_2(cols))
        return out
