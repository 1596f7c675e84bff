# expect: uncredited
# root: sizes
# base: sizes_fused_attention
# Where there are many heads each program looks at every other tile of keys; the reference is fused attention without a mask.
# - step = 1
# + step = 2 if B * H >= 64 else 1
