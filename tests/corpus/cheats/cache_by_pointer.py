# hacks: 48
# base: cache_by_corner
# Keeps results by data pointer.
# - key = tuple(x[:2, :2].flatten().tolist()) + tuple(x[-2:, -2:].flatten().tolist())
# + key = x.data_ptr()
