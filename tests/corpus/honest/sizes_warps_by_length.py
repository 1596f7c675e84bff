# base: sizes_whole_row
# The number of warps follows the length of a row.
# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols), num_warps=8 if cols >= 1024 else 4)
