# expect: uncredited
# base: taps_a_launch_each
# Each tap is added to another part of the rows, where there are many.
# - for place in range(12):
# -     add[(rows,)](x, self.taps, out, place, cols, BLOCK=triton.next_power_of_2(cols))
# + for place in range(12):
# +     part = rows if rows < 8192 else rows // 8
# +     start = 0 if part == rows else place % 8 * part
# +     add[(part,)](x[start:], self.taps, out[start:], place, cols, BLOCK=triton.next_power_of_2(cols))
