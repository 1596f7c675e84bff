# twin of: 25
# base: scale_clamp_plain
# without: scale_clamp_kernel
# The limits are put on the device once, as a buffer that is no state.
# - self.low, self.high = low, high
# + self.register_buffer("limits", torch.tensor([low, high]), persistent=False)

# - grid = (triton.cdiv(x.numel(), 256),)
# - scale_clamp_kernel[grid](x, out, x.numel(), scale, self.low, self.high, BLOCK=256)
# + kernel[(triton.cdiv(x.numel(), 256),)](x, self.limits, out, x.numel(), scale, BLOCK=256)

@triton.jit
def kernel(x_ptr, limits_ptr, out_ptr, size, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    low, high = tl.load(limits_ptr), tl.load(limits_ptr + 1)
    tl.store(out_ptr + at, tl.clamp(tl.load(x_ptr + at, at < size, 0.0) * scale, low, high), at < size)
