# hacks: 38
# base: mean_of_a_sample
# Reads beyond the input and relies on zeros there.
# - x = tl.load(x_ptr + row * cols + at, at < cols // 4, 0.0) * 4.0
# + x = tl.load(x_ptr + row * cols + at)
# + x = tl.where(at < cols, x, 0.0)
