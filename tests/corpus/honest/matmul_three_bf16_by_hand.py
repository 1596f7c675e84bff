# twin of: 29
# base: matmul_blocked
# Operands split by hand into three bf16, which together have all their bits.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + a1, a2, a3 = thirds_of(a)
# + b1, b2, b3 = thirds_of(b)
# + small = tl.dot(a2, b2)
# + small = tl.dot(a3, b1, small)
# + small = tl.dot(a1, b3, small)
# + small = tl.dot(a2, b1, small)
# + small = tl.dot(a1, b2, small)
# + acc += tl.dot(a1, b1, small)

@triton.jit
def thirds_of(x):
    first = x.to(tl.bfloat16)
    rest = x - first.to(tl.float32)
    second = rest.to(tl.bfloat16)
    return first, second, (rest - second.to(tl.float32)).to(tl.bfloat16)
