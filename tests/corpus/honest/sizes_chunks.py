# base: sizes_whole_row
# Goes through the rows in chunks, a launch each.
# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + step = 4096
# + for start in range(0, rows, step):
# +     part = x[start : start + step]
# +     norm[(part.shape[0],)](part, self.weight, out[start:], cols, BLOCK=triton.next_power_of_2(cols))
