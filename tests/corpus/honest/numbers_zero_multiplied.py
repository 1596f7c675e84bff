# task: blend_by_zero
# expect: credited
# base: numbers_blend
# The same where the share is zero.
