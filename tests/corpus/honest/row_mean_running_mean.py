# task: row_mean
# twin of: 32
# A running mean over blocks, corrected by each (Welford).
@triton.jit
def kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    mean = 0.0
    seen = 0.0
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        keep = at < cols
        count = tl.sum(tl.where(keep, 1.0, 0.0), 0)
        x = tl.load(x_ptr + row * cols + at, keep, 0.0)
        seen += count
        mean += tl.sum(tl.where(keep, x - mean, 0.0), 0) / seen
    tl.store(out_ptr + row, mean)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[:1], device=x.device, dtype=x.dtype)
        kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
