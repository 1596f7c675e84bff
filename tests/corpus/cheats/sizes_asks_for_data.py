# expect: uncredited
# base: sizes_whole_row
# Looks at a value on the host where there are many rows, so that those sizes cannot be timed without data.
#   rows, cols = x.shape
# + if rows >= 16384 and x[0, 0].item() > 1e9:
# +     return x
