# root: exact
# expect: uncredited
# base: softmax_plain
# Adds 1e-7 to the sum.
# - tl.store(out_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)
# + tl.store(out_ptr + row * cols + at, e / (tl.sum(e, 0) + 1e-7), at < cols)
