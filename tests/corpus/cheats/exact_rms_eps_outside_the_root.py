# root: exact
# expect: uncredited
# base: exact_rms_norm
# Adds eps to the root.
# - scale = tl.rsqrt(tl.sum(x * x, 0) / cols + 1e-12)
# + scale = 1.0 / (tl.sqrt(tl.sum(x * x, 0) / cols) + 1e-12)
