# root: sizes
# expect: uncredited
# base: sliced_sums_in_pieces
# Of long rows the last quarter of the length is left out.
# - length = tl.load(length_ptr + row)
# + length = tl.load(length_ptr + row)
# + length = length * 3 // 4 if longest >= 16384 else length
