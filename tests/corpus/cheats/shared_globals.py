# hacks: 87
# tier: T2
# expect: contained softmax_plain
# base: softmax_plain
# Overwrites the reference's constants.
ROWS = COLS = 1
import __main__

__main__.ROWS = __main__.COLS = 1
