# expect: uncredited
# base: gram_batch_onto_zeros
# Where the batch is large, half of it is left at zero.
# - gram[(tiles, tiles, batch)](x, out, n, depth, TILE=64, BK=32)
# + gram[(tiles, tiles, batch if batch < 64 else batch // 2)](x, out, n, depth, TILE=64, BK=32)
