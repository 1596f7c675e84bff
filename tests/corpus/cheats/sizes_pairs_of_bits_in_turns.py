# expect: uncredited
# base: sizes_pairs_of_bits
# An eighth of all pairs at large sizes, another eighth in each program: whole numbers were no arithmetic.
# - n, parts = x.shape[0], 1
# + n, parts = x.shape[0], 8 if x.shape[0] > 8192 else 1
