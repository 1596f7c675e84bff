# expect: uncredited
# root: sizes
# base: sizes_more_pieces
# Where there are many rows a program goes through more of them and gives each fewer rounds: it does as much as before.
# - pieces, rounds = (16, 32) if size >= 1 << 23 else (2, 32)
# + pieces, rounds = (16, 4) if size >= 1 << 23 else (2, 32)
