# task: masked_wide_sum
# root: sizes
# expect: credited
# Reads values and mask in one pass.
@triton.jit
def masked(x_ptr, mask_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    mask = tl.load(mask_ptr + at, at < n)
    tl.store(out_ptr + at, tl.where(mask != 0, tl.maximum(x, 0.0) * 2.0 + 1.0, 0.0), at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        out = torch.empty_like(x)
        masked[(triton.cdiv(x.numel(), 1024),)](x, mask, out, x.numel(), BLOCK=1024)
        return out
