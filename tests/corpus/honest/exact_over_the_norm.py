# task: exact_over_the_norm
# base: exact_rms_norm_by_division
# One program a row.
# - out = x / tl.sqrt(tl.sum(x * x / cols, 0) + 1e-12)
# + out = x / (tl.sqrt(tl.sum(x * x, 0)) + 1e-12)
