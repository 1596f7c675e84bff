# twin of: 32
# base: matmul_blocked
# Tiles that do not divide the shape, small steps along K.
# - matmul_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](a, b, c, m, n, k, BM=16, BN=16, BK=32)
# + matmul_kernel[triton.cdiv(m, 32), triton.cdiv(n, 64)](a, b, c, m, n, k, BM=32, BN=64, BK=16)
