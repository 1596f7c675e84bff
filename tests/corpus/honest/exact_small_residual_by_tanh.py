# base: exact_small_residual
# The sigmoid by a positive exponential.
# - out = x / (1.0 + tl.exp(-x)) + 1e-7 * r
# + e = tl.exp(x)
# + out = r * 1e-7 + x * (1.0 - 1.0 / (1.0 + e))
