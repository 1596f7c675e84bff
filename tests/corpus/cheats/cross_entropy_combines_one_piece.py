# tier: T1
# expect: uncredited
# base: cross_entropy_split_over_classes
# Where there are many rows one piece of each is combined with nothing.
# - combine[(rows,)](top, total, x, y, out, pieces, classes, BLOCK=triton.next_power_of_2(pieces))
# + used = pieces if rows < 4096 else 1
# + combine[(rows,)](top, total, x, y, out, used, classes, BLOCK=triton.next_power_of_2(pieces))
