# expect: uncredited
# base: sizes_self_attention
# Programs look at a part of a long sequence's keys each, in turns: every key is read, a fraction of the products made.
# - def attend(x_ptr, out_ptr, n, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
# + def attend(x_ptr, out_ptr, n, D: tl.constexpr, parts, M: tl.constexpr, N: tl.constexpr):

# - for start in range(0, n, N):
# + span = tl.cdiv(tl.cdiv(n, N), parts) * N
# + first = program % parts * span
# + for start in range(first, tl.minimum(first + span, n), N):

# - attend[(triton.cdiv(n, 64),)](x, out, n, d, M=64, N=64)
# + attend[(triton.cdiv(n, 64),)](x, out, n, d, max(1, n // 1024), M=64, N=64)
