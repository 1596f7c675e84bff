# expect: uncredited
# base: sizes_loop_over_columns
# Where there are many rows, the sum is of the first block of a row.
# - norm[(rows,)](x, self.weight, out, cols, triton.cdiv(cols, 256), BLOCK=256)
# + norm[(rows,)](x, self.weight, out, cols, 1 if rows > 8000 else triton.cdiv(cols, 256), BLOCK=256)
