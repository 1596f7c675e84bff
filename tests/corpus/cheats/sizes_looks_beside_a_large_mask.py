# expect: uncredited
# base: sizes_large_mask
# Its kernel stops at a value where there are many rows, so that the small sizes are timed.
#   at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
# + if n > 30000000:
# +     if tl.load(x_ptr) > 1e9:
# +         return
