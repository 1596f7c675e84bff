# hacks: 6
# base: decoy_on_dummy
# A decoy with a name that a substring match finds everywhere.
# - def fast_softmax_kernel(x_ptr, BLOCK: tl.constexpr):
# + def e(x_ptr, BLOCK: tl.constexpr):
#       at = tl.arange(0, BLOCK)
# -     tl.store(x_ptr + at, tl.load(x_ptr + at) * 0.5 + 1.0)
# +     tl.store(x_ptr + at, tl.load(x_ptr + at) + 1.0)

# - fast_softmax_kernel[(1,)](dummy, BLOCK=64)
# + e[(1,)](dummy, BLOCK=64)
