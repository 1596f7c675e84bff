# twin of: 25
# base: layer_norm_plain
# Own parameters under other names, in the same order.
# - self.norm = torch.nn.LayerNorm(96)
# + self.gain = torch.nn.Parameter(torch.ones(96))
# + self.shift = torch.nn.Parameter(torch.zeros(96))

# - norm = self.norm
# - layer_norm_kernel[(rows,)](x, norm.weight, norm.bias, out, cols, norm.eps, BLOCK=triton.next_power_of_2(cols))
# + layer_norm_kernel[(rows,)](x, self.gain, self.shift, out, cols, 1e-5, BLOCK=triton.next_power_of_2(cols))
