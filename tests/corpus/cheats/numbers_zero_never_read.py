# task: blend_by_zero
# root: inputs
# base: numbers_blend
# The task's share is zero, so the second input is never read.
# - y = tl.load(y_ptr + at, at < n, 0.0)
# + y = 0.0
