# task: softmax
# twin of: 7
# One kernel finds maximum and sum of each row, another applies them.
@triton.jit
def statistics_kernel(x_ptr, peak_ptr, total_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    peak = tl.max(x, 0)
    tl.store(peak_ptr + row, peak)
    tl.store(total_ptr + row, tl.sum(tl.exp(x - peak), 0))


@triton.jit
def apply_kernel(x_ptr, peak_ptr, total_ptr, out_ptr, size, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    row = at // cols
    x = tl.load(x_ptr + at, keep)
    y = tl.exp(x - tl.load(peak_ptr + row, keep)) / tl.load(total_ptr + row, keep, 1.0)
    tl.store(out_ptr + at, y, keep)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        peak = torch.empty(rows, device=x.device)
        total = torch.empty(rows, device=x.device)
        out = torch.empty_like(x)
        statistics_kernel[(rows,)](x, peak, total, cols, BLOCK=triton.next_power_of_2(cols))
        apply_kernel[(triton.cdiv(x.numel(), 256),)](x, peak, total, out, x.numel(), cols, BLOCK=256)
        return out
