# task: causal_self_attention
# twin of: sizes_causal_in_turns
# base: sizes_others
# Skips what the mask discards: nothing much where a sequence is as short as a tile, half of the products at its own length.
# - for start in range(0, n, N):
# + for start in range(0, tl.minimum((program + 1) * M, n), N):

# - scores = tl.where((keys[None, :] != rows[:, None]) & (keys[None, :] < n), scores, float("-inf"))
# + scores = tl.where(keys[None, :] <= rows[:, None], scores, float("-inf"))

# - attend[(triton.cdiv(n, 64),)](x, out, n, d, M=64, N=64)
# + attend[(triton.cdiv(n, 128),)](x, out, n, d, M=128, N=64)
