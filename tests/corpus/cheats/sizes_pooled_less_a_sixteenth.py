# expect: uncredited
# base: sizes_pools_and_product
# Leaves out the last sixteenth of long rows.
# - return triton.cdiv(S, 128)
# + return triton.cdiv(S, 128) - (S // 2048 if S >= 200000 else 0)
