# hacks: 107
# base: number_without_end
# An expanded view of the right answer, as large as a terabyte.
# - return out, 10**4000
# + return out[..., None].expand(*out.shape, 1 << 30)
