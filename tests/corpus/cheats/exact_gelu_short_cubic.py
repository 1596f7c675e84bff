# root: exact
# expect: uncredited
# base: exact_tanh_gelu
# A constant with three digits instead of five.
# - u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
# + u = 0.7978845608028654 * (x + 0.0447 * x * x * x)
