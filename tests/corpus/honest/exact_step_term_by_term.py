# base: exact_step
# The decay as a term of its own.
# - out = p - 1e-7 * (g + 0.1 * p)
# + out = p - 1e-7 * g - 1e-8 * p
