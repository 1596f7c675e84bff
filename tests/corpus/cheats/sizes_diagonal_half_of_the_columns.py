# expect: uncredited
# base: sizes_diagonal_by_rows
# Leaves half of each row out where there are many rows.
# - scaled[(N,)](a, b, out, N, M, M, BLOCK=256)
# + scaled[(N,)](a, b, out, N, M, M if N < 2048 else M // 2, BLOCK=256)
