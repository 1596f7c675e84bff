# root: exact
# expect: uncredited
# base: exact_over_the_norm
# No eps beside the norm.
# - out = x / (tl.sqrt(tl.sum(x * x, 0)) + 1e-12)
# + out = x * tl.rsqrt(tl.sum(x * x, 0))
