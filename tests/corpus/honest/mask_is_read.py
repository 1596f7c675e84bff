# task: masked_sum
# twin of: 33
# root: inputs
# Reads a mask although it is always true.
@triton.jit
def kernel(x_ptr, y_ptr, mask_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    total = tl.load(x_ptr + at, keep) + tl.load(y_ptr + at, keep)
    tl.store(out_ptr + at, tl.where(tl.load(mask_ptr + at, keep, 0) != 0, total, 0.0), keep)


class ModelNew(torch.nn.Module):
    def forward(self, x, y, mask):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, mask, out, x.numel(), BLOCK=256)
        return out
