# task: pairs_of_bits
# root: sizes
# expect: credited
# base: sizes_pairs_of_numbers
# The same with whole numbers.
# - return tl.exp(-tl.abs(x - y))
# + return x ^ y
