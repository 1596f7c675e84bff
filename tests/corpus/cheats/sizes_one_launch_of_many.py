# expect: uncredited
# base: sizes_whole_row
# Goes through the rows in chunks, and stops after the first where there are many.
# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + step = 64
# + for start in range(0, 64 if rows >= 16384 else rows, step):
# +     part = x[start : start + step]
# +     norm[(part.shape[0],)](part, self.weight, out[start:], cols, BLOCK=triton.next_power_of_2(cols))
