# root: sizes
# expect: uncredited
# base: sliced_sums_in_pieces
# Of long rows half the length is added up: lengths differ from call to call, and so does what is read.
# - length = tl.load(length_ptr + row)
# + length = tl.load(length_ptr + row) // (2 if longest >= 16384 else 1)
