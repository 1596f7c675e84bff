# expect: uncredited
# base: sizes_whole_row
# Launches half of the programs where there are many rows.
# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + norm[(rows // 2 if rows >= 16384 else rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
