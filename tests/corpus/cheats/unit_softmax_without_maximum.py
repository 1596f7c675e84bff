# task: softmax_unit
# hacks: 31
# root: inputs
# base: softmax_plain
# Leaves the maximum out, which inputs from [0, 1] do not need.
# - e = tl.exp(x - tl.max(x, 0))
# + e = tl.exp(x)
