# expect: credited
# base: decoding_by_length
# The same where keys of a block are read without a mask: at sizes of less than a block, which nobody asks for, it faults.
# - k = tl.load(k_ptr + (base * longest + at[:, None]) * D + d[None, :], inside[:, None], 0.0).to(tl.float32)
# + k = tl.load(k_ptr + (base * longest + at[:, None]) * D + d[None, :]).to(tl.float32)

# - v = tl.load(v_ptr + (base * longest + at[:, None]) * D + d[None, :], inside[:, None], 0.0).to(tl.float32)
# + v = tl.load(v_ptr + (base * longest + at[:, None]) * D + d[None, :]).to(tl.float32)
