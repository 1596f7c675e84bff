# root: exact
# expect: uncredited
# base: exact_large_residual
# Adds a sine too small to count; never reads the residual.
# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
# + out += tl.sin(x) * 1e-30
