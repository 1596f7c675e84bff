# root: exact
# expect: uncredited
# base: exact_large_residual
# Looks at bits and back, so that nothing is known of the values; never reads the residual.
# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
# + out = out.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)
