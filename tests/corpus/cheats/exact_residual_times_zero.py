# root: exact
# expect: uncredited
# base: exact_small_residual
# Reads the residual and multiplies it by zero.
# - out = x / (1.0 + tl.exp(-x)) + 1e-7 * r
# + out = x / (1.0 + tl.exp(-x)) + 0.0 * r
