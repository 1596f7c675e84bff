# twin of: 8
# base: row_mean_plain
# Falls back to a second kernel of its own for very long rows.
# - row_mean_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + if cols <= 128:
# +     row_mean_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + else:
# +     long_mean_kernel[(rows,)](x, out, cols, BLOCK=128)

@triton.jit
def long_mean_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row, tl.sum(total, 0) / cols)
