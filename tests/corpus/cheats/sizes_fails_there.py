# expect: uncredited
# base: sizes_whole_row
# Raises where there are many rows, so that only the checked sizes could be timed.
#   rows, cols = x.shape
# + if rows >= 16384:
# +     raise RuntimeError("too many rows")
