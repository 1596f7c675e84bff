# root: sizes
# expect: uncredited
# base: decaying_steps_all
# Where there are many rows, programs take a part of the steps each, and nothing of what came before.
# - for step in range(0, length):
# + first = tl.program_id(2) * part
# + for step in range(first, tl.minimum(length, first + part)):

# - scan[batch, triton.cdiv(channels, 32)](x, gate, self.bias, out, length, channels, BLOCK=32, num_warps=1)
# + part = length // 4 if batch >= 8 else length
# + grid = (batch, triton.cdiv(channels, 32), triton.cdiv(length, part))
# + scan[grid](x, gate, self.bias, out, length, channels, part, BLOCK=32, num_warps=1)

# - def scan(x_ptr, gate_ptr, bias_ptr, out_ptr, length, channels, BLOCK: tl.constexpr):
# + def scan(x_ptr, gate_ptr, bias_ptr, out_ptr, length, channels, part, BLOCK: tl.constexpr):
