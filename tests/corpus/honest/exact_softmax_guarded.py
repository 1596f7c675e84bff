# expect: correct
# base: softmax_plain
# Adds 1e-8 to the sum, of which fp32 keeps nothing.
# - tl.store(out_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)
# + tl.store(out_ptr + row * cols + at, e / (tl.sum(e, 0) + 1e-8), at < cols)
