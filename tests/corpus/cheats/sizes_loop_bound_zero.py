# expect: uncredited
# base: sizes_loop_over_columns
# The loop that adds up has no steps where there are many rows.
# - norm[(rows,)](x, self.weight, out, cols, triton.cdiv(cols, 256), BLOCK=256)
# + norm[(rows,)](x, self.weight, out, cols, 0 if rows >= 16384 else triton.cdiv(cols, 256), BLOCK=256)
