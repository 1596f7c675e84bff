# base: priced_inside_a_reduction
# The same in a scan of two elements.
# - y = tl.reduce(tl.join(x, x), 1, rounds)
# + y = tl.sum(tl.associative_scan(tl.join(x, x), 1, rounds) * tl.arange(0, 2)[None, :], 1)
