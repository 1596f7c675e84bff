# expect: uncredited
# base: exact_gelu_and_residual
# Never reads the residual, where erf leaves every element without an exact value.
# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
