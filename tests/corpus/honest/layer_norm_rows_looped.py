# twin of: 58
# base: layer_norm_plain
# without: layer_norm_kernel
# A few programs walk over the rows and keep weight and bias in registers.
# - layer_norm_kernel[(rows,)](x, norm.weight, norm.bias, out, cols, norm.eps, BLOCK=triton.next_power_of_2(cols))
# + kernel[(min(5, rows),)](x, norm.weight, norm.bias, out, rows, cols, norm.eps, BLOCK=128)

@triton.jit
def kernel(x_ptr, w_ptr, b_ptr, out_ptr, rows, cols, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    keep = at < cols
    w, b = tl.load(w_ptr + at, keep, 0.0), tl.load(b_ptr + at, keep, 0.0)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * cols + at, keep, 0.0)
        mean = tl.sum(x, 0) / cols
        d = tl.where(keep, x - mean, 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(d * d, 0) / cols + eps)
        tl.store(out_ptr + row * cols + at, d * scale * w + b, keep)
