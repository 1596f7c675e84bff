# root: prices
# expect: neutral cosine_rounds_mapped
# base: cosine_rounds_mapped
# All rounds in the function of a reduction of two elements, whose loop was priced as one round.
# - def rounds(x):
# + def rounds(x, other):

# - y = tl.map_elementwise(rounds, x)
# + y = tl.reduce(tl.join(x, x), 1, rounds)
