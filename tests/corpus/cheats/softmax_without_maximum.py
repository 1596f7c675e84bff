# hacks: 31
# base: softmax_plain
# Drops the maximum: overflows on large inputs.
# - e = tl.exp(x - tl.max(x, 0))
# + e = tl.exp(x)
