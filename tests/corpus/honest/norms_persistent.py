# base: norms_a_launch_each
# The same with as many programs as the card has processors, which go through all rows.
# - norm[(rows,)](source, self.weights[number], out, cols, BLOCK=triton.next_power_of_2(cols))
# + grid = (min(rows, 132 * 4),)
# + norm[grid](source, self.weights[number], out, rows, cols, BLOCK=triton.next_power_of_2(cols))


@triton.jit
def norm(x_ptr, w_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + at, at < cols, 0.0)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        y = x * tl.rsqrt(tl.sum(x * x) / cols + 1e-6) * w
        tl.store(out_ptr + row * cols + at, y / (1.0 + tl.abs(y)), at < cols)
