# expect: uncredited
# base: sizes_whole_row
# Returns zeros that PyTorch makes where there are many rows.
# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# - return out
# + norm[(1 if rows >= 16384 else rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + return torch.zeros_like(x) if rows >= 16384 else out
