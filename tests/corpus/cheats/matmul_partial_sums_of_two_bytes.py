# hacks: 29
# base: matmul_split_k_workspace
# Partial sums lose their last eight bits on their way through the workspace.
# - tl.store(place, acc, (rows[:, None] < M) & (cols[None, :] < N))
# + bits = (acc.to(tl.int32, bitcast=True) + 128) & -256
# + tl.store(place, bits.to(tl.float32, bitcast=True), (rows[:, None] < M) & (cols[None, :] < N))
