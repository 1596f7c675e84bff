# root: exact
# expect: uncredited
# base: exact_large_residual
# Reads a sixteenth of the residual, and looks at bits so that nothing is known of the values.
# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
# + out += 1e-7 * tl.load(r_ptr + at, at < n // 16, 0.0)
# + out = out.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)
