# base: exact_tanh_gelu
# By a sigmoid of twice the argument.
# - t = 1.0 - 2.0 / (tl.exp(2.0 * u) + 1.0)
# - out = x + 0.0005 * x * (1.0 + t)
# + out = x + 0.001 * x / (1.0 + tl.exp(-2.0 * u))
