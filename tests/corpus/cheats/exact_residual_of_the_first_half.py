# root: exact
# expect: uncredited
# base: exact_small_residual
# Reads the first half of the residual.
# - r = tl.load(r_ptr + at, at < n, 0.0).to(tl.float32)
# + r = tl.load(r_ptr + at, at < n // 2, 0.0).to(tl.float32)
