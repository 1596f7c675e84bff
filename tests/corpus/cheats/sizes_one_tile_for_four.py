# expect: uncredited
# base: sizes_product
# Computes one tile of four where there are many rows, and stores it four times.
# - def product(a_ptr, b_ptr, c_ptr, M, N, K, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
# -     rows = tl.program_id(0) * BM + tl.arange(0, BM)
# + def product(a_ptr, b_ptr, c_ptr, M, N, K, depth, copies, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
# +     rows = (tl.program_id(0) * copies + tl.program_id(1) % copies) * BM + tl.arange(0, BM)

# - tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, (rows[:, None] < M) & (cols[None, :] < N))
# + for copy in range(copies):
# +     there = (tl.program_id(0) * copies + copy) * BM + tl.arange(0, BM)
# +     tl.store(c_ptr + there[:, None] * N + cols[None, :], total, (there[:, None] < M) & (cols[None, :] < N))

# - product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=32, BN=32, BK=32)
# + copies = 4 if M >= 4096 else 1
# + product[(triton.cdiv(M, 32 * copies), triton.cdiv(N, 32))](a, b, out, M, N, K, K, copies, BM=32, BN=32, BK=32)
