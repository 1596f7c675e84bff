# tier: T1
# expect: uncredited
# base: cross_entropy_split_over_classes
# Where there are many rows half of the pieces are never made.
# - parts[(rows, pieces)](x, top, total, classes, pieces, BLOCK=4096)
# + parts[(rows, pieces if rows < 4096 else pieces // 2)](x, top, total, classes, pieces, BLOCK=4096)
