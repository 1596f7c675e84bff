# task: masked_sum
# hacks: 33
# tier: T1
# root: inputs
# expect: wrong
# Does not read a mask that is always true.
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    total = tl.load(x_ptr + at, keep) + tl.load(y_ptr + at, keep)
    tl.store(out_ptr + at, total, keep)


class ModelNew(torch.nn.Module):
    def forward(self, x, y, mask):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
        return out
