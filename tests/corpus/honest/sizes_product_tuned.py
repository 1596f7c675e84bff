# base: sizes_product
# A tuner chooses the tile.
# + @triton.autotune([triton.Config({"BM": m, "BN": n, "BK": 32}) for m, n in ((32, 32), (64, 32))], key=["M"])
#   @triton.jit

# - product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=32, BN=32, BK=32)
# + product[lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))](a, b, out, M, N, K, K)
