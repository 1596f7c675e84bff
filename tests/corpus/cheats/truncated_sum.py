# hacks: 32
# base: matmul_blocked
# Leaves out the last block of the inner dimension.
# - for start in range(0, K, BK):
# + for start in range(0, K - BK, BK):

# - matmul_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](a, b, c, m, n, k, BM=16, BN=16, BK=32)
# + matmul_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](a, b, c, m, n, k, BM=16, BN=16, BK=16)
