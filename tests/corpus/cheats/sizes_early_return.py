# expect: uncredited
# base: sizes_whole_row
# Programs beyond a limit return at once; the limit is above what is checked.
# - def norm(x_ptr, w_ptr, out_ptr, cols, BLOCK: tl.constexpr):
# + def norm(x_ptr, w_ptr, out_ptr, cols, limit, BLOCK: tl.constexpr):
#       row = tl.program_id(0)
# +     if row >= limit:
# +         return

# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + norm[(rows,)](x, self.weight, out, cols, 10000, BLOCK=triton.next_power_of_2(cols))
