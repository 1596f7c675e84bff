# root: exact
# expect: uncredited
# base: exact_large_residual
# The mask keeps the residual away where there are many elements.
# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
# + out += 1e-7 * tl.load(r_ptr + at, at < tl.where(n < 20000, n, 16), 0.0)
