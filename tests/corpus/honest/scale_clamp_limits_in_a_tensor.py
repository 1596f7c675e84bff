# task: scale_clamp
# twin of: 25
# expect: correct
# The limits are put on the device once, as a buffer that is no state.
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, limits_ptr, out_ptr, size, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    low, high = tl.load(limits_ptr), tl.load(limits_ptr + 1)
    tl.store(out_ptr + at, tl.clamp(tl.load(x_ptr + at, at < size, 0.0) * scale, low, high), at < size)


class ModelNew(torch.nn.Module):
    def __init__(self, low, high):
        super().__init__()
        self.register_buffer("limits", torch.tensor([low, high]), persistent=False)

    def forward(self, x, scale):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, self.limits, out, x.numel(), scale, BLOCK=256)
        return out
