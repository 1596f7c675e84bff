# expect: uncredited
# base: gram_by_diagonals
# Where there are many rows, only the tiles on four of the diagonals are computed.
# - gram[(tiles * (tiles // 2 + 1),)](x, out, n, depth, tiles, TILE=64, BK=32)
# + gram[(tiles * (tiles // 2 + 1 if n < 2048 else 4),)](x, out, n, depth, tiles, TILE=64, BK=32)
