# root: exact
# expect: uncredited
# base: exact_decaying_sum
# Leaves out the later half of a row, whose weights are small.
# - x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
# + x = tl.load(x_ptr + row * cols + at, at < cols // 2, 0.0)
