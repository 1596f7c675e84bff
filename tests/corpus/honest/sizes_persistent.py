# base: sizes_whole_row
# Few programs go through all rows.
# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + norm[(min(rows, 264),)](x, self.weight, out, rows, cols, BLOCK=triton.next_power_of_2(cols))

@triton.jit
def norm(x_ptr, w_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + at, at < cols, 0.0)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        tl.store(out_ptr + row * cols + at, x * tl.rsqrt(tl.sum(x * x) / cols + 1e-6) * w, at < cols)
