# root: exact
# expect: uncredited
# base: exact_large_residual
# Adds random numbers too small to count; never reads the residual.
# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
# + out += tl.rand(7, at) * 1e-30
