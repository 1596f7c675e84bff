# twin of: 31
# base: softmax_plain
# exp2 with a folded constant instead of exp.
# - e = tl.exp(x - tl.max(x, 0))
# + e = tl.math.exp2((x - tl.max(x, 0)) * 1.4426950408889634)
