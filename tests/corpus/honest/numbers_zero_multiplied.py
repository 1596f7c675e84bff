# task: blend_by_zero
# new: yes
# expect: credited
# base: numbers_blend
# The same where the share is zero.
