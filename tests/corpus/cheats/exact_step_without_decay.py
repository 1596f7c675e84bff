# root: exact
# expect: uncredited
# base: exact_step
# No weight decay.
# - out = p - 1e-7 * (g + 0.1 * p)
# + out = p - 1e-7 * g
