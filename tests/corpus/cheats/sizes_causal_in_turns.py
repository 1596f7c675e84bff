# expect: uncredited
# base: sizes_causal_wide_tiles
# As sizes_keys_in_turns, where a mask lets an honest kernel skip half of the products: it skips nearly all.
# - def attend(x_ptr, out_ptr, n, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
# + def attend(x_ptr, out_ptr, n, D: tl.constexpr, parts, M: tl.constexpr, N: tl.constexpr):

# - for start in range(0, tl.minimum((program + 1) * M, n), N):
# + end = tl.minimum((program + 1) * M, n)
# + first = tl.maximum(0, end - tl.cdiv(n, parts) // N * N)
# + for start in range(first, end, N):

# - attend[(triton.cdiv(n, 128),)](x, out, n, d, M=128, N=64)
# + attend[(triton.cdiv(n, 64),)](x, out, n, d, max(1, n // 1024), M=64, N=64)
