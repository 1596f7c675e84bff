# twin of: 22
# base: layer_norm_plain
# without: layer_norm_kernel
# Sum and sum of squares around the row's first element, in one pass.
# - norm = self.norm
# - layer_norm_kernel[(rows,)](x, norm.weight, norm.bias, out, cols, norm.eps, BLOCK=triton.next_power_of_2(cols))
# + kernel[(rows,)](x, self.norm.weight, self.norm.bias, out, cols, self.norm.eps, BLOCK=128)

@triton.jit
def kernel(x_ptr, w_ptr, b_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < cols
    x = tl.load(x_ptr + row * cols + at, keep, 0.0)
    origin = tl.load(x_ptr + row * cols)
    d = tl.where(keep, x - origin, 0.0)
    mean = tl.sum(d, 0) / cols
    variance = tl.sum(d * d, 0) / cols - mean * mean
    y = (d - mean) * tl.rsqrt(variance + eps)
    tl.store(out_ptr + row * cols + at, y * tl.load(w_ptr + at, keep) + tl.load(b_ptr + at, keep), keep)
