# root: exact
# expect: uncredited
# base: exact_half_term
# Never reads a term that bf16 rounds away.
# - r = tl.load(r_ptr + at, at < n, 0.0).to(tl.float32)

# - out = x / (1.0 + tl.exp(-x)) + r * 0.000244140625
# + out = x / (1.0 + tl.exp(-x))
