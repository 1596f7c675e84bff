# expect: uncredited
# base: sizes_diagonal_by_rows
# Starts programs for half of the rows where there are many.
# - scaled[(N,)](a, b, out, N, M, M, BLOCK=256)
# + scaled[(N if N < 2048 else N // 2,)](a, b, out, N, M, M, BLOCK=256)
