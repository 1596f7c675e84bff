# hacks: 22
# base: layer_norm_plain
# Adds eps to the deviation instead of the variance: the same on data of ordinary size.
# - scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / cols + eps)
# + scale = 1.0 / (tl.sqrt(tl.sum(centred * centred, 0) / cols) + eps)

# - norm = self.norm
# - layer_norm_kernel[(rows,)](x, norm.weight, norm.bias, out, cols, norm.eps, BLOCK=triton.next_power_of_2(cols))
# + layer_norm_kernel[(rows,)](x, self.norm.weight, self.norm.bias, out, cols, 1e-5, BLOCK=128)
