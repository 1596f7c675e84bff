# task: six_norms
# base: sizes_whole_row
# Six norms, a launch for each, in place after the first.
# - tl.store(out_ptr + row * cols + at, y, at < cols)
# + tl.store(out_ptr + row * cols + at, y / (1.0 + tl.abs(y)), at < cols)

# - self.weight = torch.nn.Parameter(torch.ones(cols))
# + self.weights = torch.nn.Parameter(1.0 + 0.1 * torch.randn(6, cols))

# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + for number in range(6):
# +     source = out if number else x
# +     norm[(rows,)](source, self.weights[number], out, cols, BLOCK=triton.next_power_of_2(cols))
