# base: decaying_steps_parts_where_many
# The same, with blocks that narrow calls do not launch.
# - scan[grid](x, gate, self.bias, out, length, channels, part, BLOCK=32, num_warps=1)
# + width = 64 if channels >= 1024 else 32
# + grid = (batch, triton.cdiv(channels, width), triton.cdiv(length, part))
# + scan[grid](x, gate, self.bias, out, length, channels, part, BLOCK=width, num_warps=1)
