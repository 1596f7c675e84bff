# task: blend_by_zero
# base: numbers_blend
# The same where the share is zero.
