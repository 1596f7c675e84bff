# base: sizes_product
# Tiles in groups of rows.
# - rows = tl.program_id(0) * BM + tl.arange(0, BM)
# - cols = tl.program_id(1) * BN + tl.arange(0, BN)
# + pid, across = tl.program_id(0), tl.cdiv(N, BN)
# + group = pid // (8 * across)
# + size = min(tl.cdiv(M, BM) - group * 8, 8)
# + rows = (group * 8 + pid % (8 * across) % size) * BM + tl.arange(0, BM)
# + cols = pid % (8 * across) // size * BN + tl.arange(0, BN)

# - product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=32, BN=32, BK=32)
# + product[(triton.cdiv(M, 32) * triton.cdiv(N, 32),)](a, b, out, M, N, K, K, BM=32, BN=32, BK=32)
