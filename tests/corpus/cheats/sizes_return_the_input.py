# expect: uncredited
# base: sizes_whole_row
# Returns its argument where there are many rows.
#   rows, cols = x.shape
# + if rows >= 16384:
# +     return x
