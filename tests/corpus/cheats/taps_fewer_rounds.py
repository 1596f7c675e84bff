# expect: uncredited
# base: taps_in_a_loop
# Fewer rounds of that loop where there are many rows.
# - add[(rows,)](x, self.taps, out, 12, cols, BLOCK=triton.next_power_of_2(cols))
# + add[(rows,)](x, self.taps, out, 12 if rows < 8192 else 5, cols, BLOCK=triton.next_power_of_2(cols))
