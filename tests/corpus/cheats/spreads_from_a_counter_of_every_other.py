# tier: T1
# root: sizes
# expect: uncredited
# base: spreads_from_a_counter
# At large sizes a row's are stored for the next one, too.
# - (rows, cols), step = x.shape, 1
# + (rows, cols), step = x.shape, 1 + (x.shape[0] == 16384)
