# twin of: 17
# base: softmax_plain
# The work is in a jitted helper that the kernel calls.
# - e = tl.exp(x - tl.max(x, 0))
# - tl.store(out_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)
# + tl.store(out_ptr + row * cols + at, normalise(x), at < cols)

@triton.jit
def normalise(x):
    e = tl.exp(x - tl.max(x, 0))
    return e / tl.sum(e, 0)
