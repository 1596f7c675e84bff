# task: gelu_and_residual
# root: exact
# expect: credited
# base: exact_large_residual
# GELU by erf and the residual in one pass.
# - out = x / (1.0 + tl.exp(-x))
# + out = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
