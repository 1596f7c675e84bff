# task: exact_small_residual
# base: exact_large_residual
# SiLU and the residual in one pass.
# - out = x / (1.0 + tl.exp(-x))
# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
# + r = tl.load(r_ptr + at, at < n, 0.0).to(tl.float32)
# + out = x / (1.0 + tl.exp(-x)) + 1e-7 * r
