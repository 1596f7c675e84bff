# task: softmax_unit
# twin of: 31
# root: inputs
# Rescales its sum when a later block has a larger maximum.
@triton.jit
def kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = x_ptr + tl.program_id(0) * cols
    at = tl.arange(0, BLOCK)
    peak = tl.max(tl.load(row + at), 0)
    total = 0.0
    for start in range(0, cols, BLOCK):
        x = tl.load(row + start + at)
        new = tl.maximum(peak, tl.max(x, 0))
        total = total * tl.exp(peak - new) + tl.sum(tl.exp(x - new), 0)
        peak = new
    for start in range(0, cols, BLOCK):
        tl.store(out_ptr + tl.program_id(0) * cols + start + at, tl.exp(tl.load(row + start + at) - peak) / total)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
        return out
