# root: exact
# expect: uncredited
# base: exact_small_residual
# Reads one element of the residual for 16.
# - r = tl.load(r_ptr + at, at < n, 0.0).to(tl.float32)
# + r = tl.load(r_ptr + at // 16 * 16, at < n, 0.0).to(tl.float32)
