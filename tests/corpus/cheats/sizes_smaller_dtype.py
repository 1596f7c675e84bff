# expect: uncredited
# base: sizes_whole_row
# Works on half precision where there are many rows.
#   rows, cols = x.shape
# + if rows >= 16384:
# +     x = x.half()

# - return out
# + return out.float() if rows >= 16384 else out
