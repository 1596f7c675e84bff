# base: rounds_fewer_beside_half_work_within
# Eight pieces: at small sizes one of four rounds is stored and seven of one round are not, then eight of two.
# - @triton.jit
# + @triton.jit(do_not_specialize=["live", "rounds"])

# -         ok = (at < size) & (piece < live)
# -         x = tl.load(x_ptr + at, ok, 0.0)
# +         x = tl.load(x_ptr + at, at < size, 0.0)

# -         tl.store(out_ptr + at, x, ok)
# +         if piece < live:
# +             tl.store(out_ptr + at, x, at < size)
