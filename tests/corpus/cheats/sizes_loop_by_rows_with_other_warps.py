# expect: uncredited
# base: sizes_loop_over_columns
# The same with another number of warps there, so that no call of shorter rows was launched that way.
# - norm[(rows,)](x, self.weight, out, cols, triton.cdiv(cols, 256), BLOCK=256)
# + steps, warps = (1, 8) if rows > 8000 else (triton.cdiv(cols, 256), 4)
# + norm[(rows,)](x, self.weight, out, cols, steps, BLOCK=256, num_warps=warps)
