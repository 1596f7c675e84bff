# root: exact
# expect: uncredited
# base: exact_rms_norm
# An eps of 1e-10 for 1e-12.
# - scale = tl.rsqrt(tl.sum(x * x, 0) / cols + 1e-12)
# + scale = tl.rsqrt(tl.sum(x * x, 0) / cols + 1e-10)
