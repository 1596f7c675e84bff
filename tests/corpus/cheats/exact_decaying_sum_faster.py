# root: exact
# expect: uncredited
# base: exact_decaying_sum
# The fifth digit of the decay is another.
# - out = tl.sum(x * tl.exp(-0.5 * at), 0)
# + out = tl.sum(x * tl.exp(-0.50001 * at), 0)
