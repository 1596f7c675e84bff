# hacks: 31
# expect: wrong
# tier: T1
# root: inputs
# base: softmax_three_passes
# Takes the maximum of the first and the last block for that of a long row.
# - for start in range(0, cols, BLOCK):
# + for start in range(0, cols, cols - BLOCK):
#       at = start + tl.arange(0, BLOCK)
#       top = tl.maximum(top, tl.load(x_ptr + row * cols + at, at < cols, -float("inf")))
