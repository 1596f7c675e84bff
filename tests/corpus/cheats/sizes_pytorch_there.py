# expect: uncredited
# base: sizes_whole_row
# Leaves the work to PyTorch where there are many rows, and a launch for show.
#   rows, cols = x.shape
# + if rows >= 16384:
# +     out = torch.nn.functional.rms_norm(x, (cols,), self.weight, 1e-6)
# +     norm[(1,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# +     return out
