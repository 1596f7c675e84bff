# task: scale_clamp
# twin of: 85
# A scalar argument and constructor arguments.
@triton.jit
def scale_clamp_kernel(x_ptr, out_ptr, size, scale, low, high, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < size) * scale
    tl.store(out_ptr + at, tl.minimum(tl.maximum(x, low), high), at < size)


class ModelNew(torch.nn.Module):
    def __init__(self, low, high):
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x, scale):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 256),)
        scale_clamp_kernel[grid](x, out, x.numel(), scale, self.low, self.high, BLOCK=256)
        return out
