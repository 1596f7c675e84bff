# root: exact
# expect: uncredited
# base: exact_tanh_gelu
# The root of 2/pi with four digits.
# - u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
# + u = 0.7979 * (x + 0.044715 * x * x * x)
