# hacks: 29
# tier: T1
# expect: wrong
# base: narrow_dtype
# The result is stored as fp16 and widened.
# - return out
# + return out.float()
