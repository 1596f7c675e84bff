# base: sizes_product
# Larger tiles where there are many rows.
# - product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=32, BN=32, BK=32)
# + tile = 64 if M >= 128 else 32
# + product[(triton.cdiv(M, tile), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=tile, BN=32, BK=32)
