# twin of: 33
# base: scale_clamp_makes_block_pointers
# A grid of tiles in two dimensions.
# - kernel[(triton.cdiv(rows, 8),)](x, out, rows, cols, scale, self.low, self.high, R=8, C=32)
# + grid = (triton.cdiv(rows, 16), triton.cdiv(cols, 16))
# + kernel[grid](x, out, rows, cols, scale, self.low, self.high, R=16, C=16)

@triton.jit
def kernel(x_ptr, out_ptr, rows, cols, scale, low, high, R: tl.constexpr, C: tl.constexpr):
    row = (tl.program_id(0) * R + tl.arange(0, R))[:, None]
    col = (tl.program_id(1) * C + tl.arange(0, C))[None, :]
    keep = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * cols + col, keep) * scale
    tl.store(out_ptr + row * cols + col, tl.minimum(tl.maximum(x, low), high), keep)
