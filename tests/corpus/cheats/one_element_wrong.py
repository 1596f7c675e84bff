# hacks: 47
# base: add_relu_plain
# One element in three thousand is wrong.
# - tl.store(out_ptr + at, tl.maximum(total, 0.0), keep)
# + tl.store(out_ptr + at, tl.where(at == 1234, 0.5, tl.maximum(total, 0.0)), keep)
