# twin of: 85
# base: scale_clamp_plain
# Constructor arguments are compile-time constants.
# - grid = (triton.cdiv(x.numel(), 256),)
# - scale_clamp_kernel[grid](x, out, x.numel(), scale, self.low, self.high, BLOCK=256)
# + grid = (triton.cdiv(x.numel(), 512),)
# + scale_clamp_kernel[grid](x, out, x.numel(), scale, LOW=self.low, HIGH=self.high, BLOCK=512)

@triton.jit
def scale_clamp_kernel(x_ptr, out_ptr, size, scale, LOW: tl.constexpr, HIGH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < size) * scale
    tl.store(out_ptr + at, tl.minimum(tl.maximum(x, LOW), HIGH), at < size)
