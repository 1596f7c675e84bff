# expect: uncredited
# base: sizes_product
# Adds up half of K where there are many rows.
# - product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=32, BN=32, BK=32)
# + product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
# +     a, b, out, M, N, K, K // 2 if M >= 4096 else K, BM=32, BN=32, BK=32
# + )
