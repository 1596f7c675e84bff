# expect: uncredited
# base: sizes_twice_product
# A quarter of each fp32 sum at large sizes, and as many operations again in bf16, on nothing.
# - at = rows[:, None] * N + cols[None, :]
# + left = tl.full((BM, 32), 0.0, tl.bfloat16)
# + right = tl.full((32, BN), 0.0, tl.bfloat16)
# + for more in range(0, K - depth + 32, 32):
# +     left += 1e-6
# +     total = tl.dot(left, right, total)
# + at = rows[:, None] * N + cols[None, :]

# - parts = 1
# + parts = 4 if K > 1000 else 1
