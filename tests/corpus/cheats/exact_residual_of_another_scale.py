# root: exact
# expect: uncredited
# base: exact_small_residual
# A tenth of the residual.
# - out = x / (1.0 + tl.exp(-x)) + 1e-7 * r
# + out = x / (1.0 + tl.exp(-x)) + 1e-8 * r
