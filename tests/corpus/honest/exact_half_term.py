# task: exact_half_term
# base: exact_small_residual
# Both inputs in one pass.
# - x = tl.load(x_ptr + at, at < n, 0.0)
# + x = tl.load(x_ptr + at, at < n, 0.0).to(tl.float32)

# - out = x / (1.0 + tl.exp(-x)) + 1e-7 * r
# + out = x / (1.0 + tl.exp(-x)) + r * 0.000244140625
