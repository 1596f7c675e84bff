# base: sizes_product
# Tiles that fill the task's own sizes, without masks.
#           k = start + tl.arange(0, BK)
# -         a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
# -         b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
# +         a, b = tl.load(a_ptr + rows[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + cols[None, :])

# -     tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, (rows[:, None] < M) & (cols[None, :] < N))
# +     tl.store(c_ptr + rows[:, None] * N + cols[None, :], total)

# - product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=32, BN=32, BK=32)
# + product[(triton.cdiv(M, 512), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=512, BN=32, BK=32)
