# expect: uncredited
# base: sizes_others
# As sizes_keys_in_turns, where a mask leaves out one key a row: of a long sequence it looks at less than half.
# - for start in range(0, n, N):
# + span = tl.minimum(n, tl.maximum(1024, n * 29 // 64 // N * N))
# + first = program % 2 * (n - span)
# + for start in range(first, first + span, N):
