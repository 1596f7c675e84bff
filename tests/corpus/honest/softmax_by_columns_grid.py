# twin of: 33
# base: softmax_plain
# A grid of rows and column blocks; every program recomputes the row's statistics.
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + softmax_kernel[(rows, triton.cdiv(cols, 32))](x, out, cols, PART=32, BLOCK=triton.next_power_of_2(cols))

@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, PART: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    peak = tl.max(x, 0)
    total = tl.sum(tl.exp(x - peak), 0)
    mine = tl.program_id(1) * PART + tl.arange(0, PART)
    y = tl.load(x_ptr + row * cols + mine, mine < cols, 0.0)
    tl.store(out_ptr + row * cols + mine, tl.exp(y - peak) / total, mine < cols)
