# root: exact
# expect: uncredited
# base: exact_decaying_sum
# Leaves out the last column.
# - x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
# + x = tl.load(x_ptr + row * cols + at, at < cols - 1, 0.0)
