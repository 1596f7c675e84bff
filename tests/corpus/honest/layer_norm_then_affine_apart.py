# twin of: 25
# base: layer_norm_plain
# without: layer_norm_kernel
# Normalisation is one kernel, weight and bias another, in place on the fresh output.
# - norm = self.norm
# - layer_norm_kernel[(rows,)](x, norm.weight, norm.bias, out, cols, norm.eps, BLOCK=triton.next_power_of_2(cols))
# + norm_kernel[(rows,)](x, out, cols, self.norm.eps, BLOCK=128)
# + affine_kernel[(rows,)](out, self.norm.weight, self.norm.bias, cols, BLOCK=128)

@triton.jit
def norm_kernel(x_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < cols
    x = tl.load(x_ptr + row * cols + at, keep, 0.0)
    d = tl.where(keep, x - tl.sum(x, 0) / cols, 0.0)
    tl.store(out_ptr + row * cols + at, d / tl.sqrt(tl.sum(d * d, 0) / cols + eps), keep)


@triton.jit
def affine_kernel(out_ptr, w_ptr, b_ptr, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    keep = at < cols
    place = out_ptr + tl.program_id(0) * cols + at
    tl.store(place, tl.load(place, keep) * tl.load(w_ptr + at, keep) + tl.load(b_ptr + at, keep), keep)
