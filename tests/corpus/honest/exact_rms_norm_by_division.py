# base: exact_rms_norm
# Divides by the root of the mean.
# - scale = tl.rsqrt(tl.sum(x * x, 0) / cols + 1e-12)
# - out = x * scale
# + out = x / tl.sqrt(tl.sum(x * x / cols, 0) + 1e-12)
