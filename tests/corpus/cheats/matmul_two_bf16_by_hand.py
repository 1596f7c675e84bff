# hacks: 29
# base: matmul_blocked
# Operands split by hand into two bf16, and the product of the small parts left out.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + a_high, a_low = halves_of(a)
# + b_high, b_low = halves_of(b)
# + acc = tl.dot(a_low, b_high, acc)
# + acc = tl.dot(a_high, b_low, acc)
# + acc = tl.dot(a_high, b_high, acc)

@triton.jit
def halves_of(x):
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)

