# twin of: 31
# base: softmax_heuristics
# Maximum and sum in one reduction with a combine function of its own.
# - softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
# + softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))

@triton.jit
def merge(peak_a, total_a, peak_b, total_b):
    peak = tl.maximum(peak_a, peak_b)
    total = total_a * tl.exp(peak_a - peak) + total_b * tl.exp(peak_b - peak)
    return peak, total


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < cols
    x = tl.load(x_ptr + row * cols + at, keep, -1e30)
    peak, total = tl.reduce((x, tl.where(keep, 1.0, 0.0)), 0, merge)
    tl.store(out_ptr + row * cols + at, tl.exp(x - peak) / total, keep)
