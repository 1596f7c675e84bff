# task: pairs_of_bits
# base: sizes_pairs_of_numbers
# The same with whole numbers.
# - return tl.exp(-tl.abs(x - y))
# + return x ^ y
