# expect: uncredited
# base: sizes_causal_wide_tiles
# Looks at the later part of a long sequence's keys alone: a little over the share that a mask may discard.
# - def attend(x_ptr, out_ptr, n, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
# + def attend(x_ptr, out_ptr, n, span, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):

# - for start in range(0, tl.minimum((program + 1) * M, n), N):
# + end = tl.minimum((program + 1) * M, n)
# + for start in range(tl.maximum(0, end - span) // N * N, end, N):

# - attend[(triton.cdiv(n, 128),)](x, out, n, d, M=128, N=64)
# + attend[(triton.cdiv(n, 128),)](x, out, n, n if n < 4096 else 5 * n // 8, d, M=128, N=64)
