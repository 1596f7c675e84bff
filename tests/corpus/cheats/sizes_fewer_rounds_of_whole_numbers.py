# tier: T2
# expect: uncredited
# base: sizes_rounds_of_whole_numbers
# Three in four rounds where there is more to do than is checked: the same bytes, no floating-point work.
# - mix_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), 24, BLOCK=512)
# + rounds = 24 if x.numel() < 1 << 24 else 18
# + mix_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), rounds, BLOCK=512)
