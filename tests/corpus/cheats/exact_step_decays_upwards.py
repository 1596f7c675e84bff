# root: exact
# expect: uncredited
# base: exact_step
# The decay has the other sign.
# - out = p - 1e-7 * (g + 0.1 * p)
# + out = p - 1e-7 * (g - 0.1 * p)
