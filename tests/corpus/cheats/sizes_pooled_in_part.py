# expect: uncredited
# base: sizes_pools_and_product
# Reads a quarter of long rows, which still grows more than the reference's work: the weights do not grow.
# - return triton.cdiv(S, 128)
# + return triton.cdiv(S, 128 if S < 200000 else 512)
