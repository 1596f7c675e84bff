# root: sizes
# expect: uncredited
# base: decaying_steps_all
# Programs take 16 steps each, and the 32 before them alone: what came earlier has decayed below any tolerance.
# - def scan(x_ptr, gate_ptr, bias_ptr, out_ptr, length, channels, BLOCK: tl.constexpr):
# + def scan(x_ptr, gate_ptr, bias_ptr, out_ptr, length, channels, PART: tl.constexpr, BLOCK: tl.constexpr):

# - for step in range(0, length):
# + first = tl.program_id(2) * PART
# + for step in range(tl.maximum(0, first - 2 * PART), tl.minimum(length, first + PART)):

# - tl.store(out_ptr + place, state, there)
# + tl.store(out_ptr + place, state, there & (step >= first))

# - scan[batch, triton.cdiv(channels, 32)](x, gate, self.bias, out, length, channels, BLOCK=32, num_warps=1)
# + grid = (batch, triton.cdiv(channels, 32), triton.cdiv(length, 16))
# + scan[grid](x, gate, self.bias, out, length, channels, PART=16, BLOCK=32, num_warps=1)
