# hacks: 7
# base: copy_after_torch
# The copy multiplies by one and adds zero, to have some arithmetic.
# - tl.store(out_ptr + at, tl.load(x_ptr + at, at < size), at < size)
# + tl.store(out_ptr + at, tl.load(x_ptr + at, at < size) * 1.0 + 0.0, at < size)
