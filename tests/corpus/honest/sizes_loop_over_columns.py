# base: sizes_whole_row
# Two passes over a row in a loop.
# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + norm[(rows,)](x, self.weight, out, cols, triton.cdiv(cols, 256), BLOCK=256)

@triton.jit
def norm(x_ptr, w_ptr, out_ptr, cols, steps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        at = step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        total += x * x
    scale = tl.rsqrt(tl.sum(total) / cols + 1e-6)
    for step in range(tl.cdiv(cols, BLOCK)):
        at = step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        tl.store(out_ptr + row * cols + at, x * scale * tl.load(w_ptr + at, at < cols, 0.0), at < cols)
