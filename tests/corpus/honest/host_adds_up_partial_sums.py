# task: row_mean
# The host adds up what a kernel wrote, two numbers a row: slow, and no decoy.
@triton.jit
def halves(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, half = tl.program_id(0), tl.program_id(1)
    at = half * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + row * 2 + half, tl.sum(tl.load(x_ptr + row * cols + at, at < cols, other=0.0), 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        partial = torch.empty(rows, 2, device=x.device)
        halves[(rows, 2)](x, partial, cols, BLOCK=triton.next_power_of_2(cols) // 2)
        means = [(first + second) / cols for first, second in partial.tolist()]
        return torch.tensor(means, device=x.device)
