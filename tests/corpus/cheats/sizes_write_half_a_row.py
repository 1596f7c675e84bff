# base: sizes_read_half_a_row
# Writes half of each row where there are many.
# - x = tl.load(x_ptr + row * cols + at, at < kept, 0.0)
# + x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
#   y = x * tl.rsqrt(tl.sum(x * x) / cols + 1e-6) * tl.load(w_ptr + at, at < cols, 0.0)
# - tl.store(out_ptr + row * cols + at, y, at < cols)
# + tl.store(out_ptr + row * cols + at, y, at < kept)
