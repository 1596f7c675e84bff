# root: exact
# expect: uncredited
# base: exact_tanh_gelu
# The fourth digit of a constant is another.
# - u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
# + u = 0.7978845608028654 * (x + 0.044725 * x * x * x)
