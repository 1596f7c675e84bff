# expect: uncredited
# base: sizes_product
# Products are in TF32 where there are many rows.
# - def product(a_ptr, b_ptr, c_ptr, M, N, K, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
# + def product(a_ptr, b_ptr, c_ptr, M, N, K, depth, P: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):

# - total = tl.dot(a, b, total, input_precision="ieee")
# + total = tl.dot(a, b, total, input_precision=P)

# - product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=32, BN=32, BK=32)
# + product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
# +     a, b, out, M, N, K, K, "tf32" if M >= 4096 else "ieee", BM=32, BN=32, BK=32
# + )
