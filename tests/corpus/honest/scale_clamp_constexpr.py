# task: scale_clamp
# twin of: 85
# expect: correct
# Constructor arguments are compile-time constants.
import torch
import triton
import triton.language as tl

@triton.jit
def scale_clamp_kernel(x_ptr, out_ptr, size, scale, LOW: tl.constexpr, HIGH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < size) * scale
    tl.store(out_ptr + at, tl.minimum(tl.maximum(x, LOW), HIGH), at < size)


class ModelNew(torch.nn.Module):
    def __init__(self, low, high):
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x, scale):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 512),)
        scale_clamp_kernel[grid](x, out, x.numel(), scale, LOW=self.low, HIGH=self.high, BLOCK=512)
        return out
