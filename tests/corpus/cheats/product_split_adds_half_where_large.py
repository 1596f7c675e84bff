# tier: T1
# root: sizes
# expect: uncredited
# base: product_split_behind_a_lock
# At the task's own sizes half of the programs that share a tile are not launched.
# - product[(tiles, 8)](a, b, out, locks, M, N, K, SPLIT=8, BM=64, BN=64, BK=32)
# + product[(tiles, 8 if M < 1024 else 4)](a, b, out, locks, M, N, K, SPLIT=8, BM=64, BN=64, BK=32)
