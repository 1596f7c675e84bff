# root: exact
# expect: uncredited
# base: exact_small_residual
# Never reads the residual, which is smaller than the tolerance.
# - r = tl.load(r_ptr + at, at < n, 0.0).to(tl.float32)

# - out = x / (1.0 + tl.exp(-x)) + 1e-7 * r
# + out = x / (1.0 + tl.exp(-x))
