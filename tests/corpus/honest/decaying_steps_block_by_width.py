# base: decaying_steps_all
# Blocks by the number of channels.
# - scan[batch, triton.cdiv(channels, 32)](x, gate, self.bias, out, length, channels, BLOCK=32, num_warps=1)
# + block = 64 if channels >= 1024 else 32
# + scan[batch, triton.cdiv(channels, block)](x, gate, self.bias, out, length, channels, BLOCK=block, num_warps=1)
