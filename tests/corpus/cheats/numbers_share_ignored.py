# root: inputs
# base: numbers_blend
# The share is always a half.
# - tl.store(out_ptr + at, wave + share * y, at < n)
# + tl.store(out_ptr + at, wave + 0.5 * y, at < n)
