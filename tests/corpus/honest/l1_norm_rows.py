# task: l1_norm
# twin of: 22
# base: softmax_plain
# without: softmax_kernel
# A row a program, magnitudes summed.
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + l1_norm_kernel[(rows,)](x, out, cols, BLOCK=128)

@triton.jit
def l1_norm_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < cols
    x = tl.load(x_ptr + row * cols + at, keep, 0.0)
    tl.store(out_ptr + row * cols + at, x / (tl.sum(tl.abs(x), 0) / cols), keep)
