# root: exact
# expect: uncredited
# base: exact_large_residual
# A factor that nothing explains; never reads the residual.
# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
# + out *= 1.0000001
