# twin of: 52
# base: scale_clamp_plain
# without: scale_clamp_kernel
# Block pointers that are advanced along the row.
# - grid = (triton.cdiv(x.numel(), 256),)
# - scale_clamp_kernel[grid](x, out, x.numel(), scale, self.low, self.high, BLOCK=256)
# + rows, cols = x.shape
# + kernel[(triton.cdiv(rows, 8),)](x, out, rows, cols, scale, self.low, self.high, R=8, C=32)

@triton.jit
def kernel(x_ptr, out_ptr, rows, cols, scale, low, high, R: tl.constexpr, C: tl.constexpr):
    start = tl.program_id(0) * R
    source = tl.make_block_ptr(x_ptr, (rows, cols), (cols, 1), (start, 0), (R, C), (1, 0))
    target = tl.make_block_ptr(out_ptr, (rows, cols), (cols, 1), (start, 0), (R, C), (1, 0))
    for _ in range(0, cols, C):
        x = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, tl.minimum(tl.maximum(x * scale, low), high), boundary_check=(0, 1))
        source = tl.advance(source, (0, C))
        target = tl.advance(target, (0, C))
