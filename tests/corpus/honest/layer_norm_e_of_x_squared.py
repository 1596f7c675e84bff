# twin of: 22
# base: layer_norm_plain
# Variance by two passes over registers, eps inside the root.
# - norm = self.norm
# - layer_norm_kernel[(rows,)](x, norm.weight, norm.bias, out, cols, norm.eps, BLOCK=triton.next_power_of_2(cols))
# + w, b, eps = self.norm.weight, self.norm.bias, self.norm.eps
# + layer_norm_kernel[(triton.cdiv(rows, 4),)](x, w, b, out, rows, cols, eps, R=4, C=128)

@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, rows, cols, eps, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    col = tl.arange(0, C)[None, :]
    keep = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * cols + col, keep, 0.0)
    mean = tl.sum(x, 1)[:, None] / cols
    d = tl.where(keep, x - mean, 0.0)
    var = tl.sum(d * d, 1)[:, None] / cols
    w = tl.load(w_ptr + col, col < cols, 0.0)
    b = tl.load(b_ptr + col, col < cols, 0.0)
    tl.store(out_ptr + row * cols + col, d * tl.rsqrt(var + eps) * w + b, keep)
