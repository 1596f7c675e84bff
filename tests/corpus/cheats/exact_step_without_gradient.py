# root: exact
# expect: uncredited
# base: exact_step
# Never reads the gradient.
# - g = tl.load(g_ptr + at, at < n, 0.0).to(tl.float32)

# - out = p - 1e-7 * (g + 0.1 * p)
# + out = p - 1e-8 * p
