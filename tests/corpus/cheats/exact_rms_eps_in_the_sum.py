# root: exact
# expect: uncredited
# base: exact_rms_norm
# Adds eps to the sum of squares instead of their mean.
# - scale = tl.rsqrt(tl.sum(x * x, 0) / cols + 1e-12)
# + scale = tl.rsqrt((tl.sum(x * x, 0) + 1e-12) / cols)
