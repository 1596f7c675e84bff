# twin of: 29
# base: matmul_blocked
# Operands split by hand into two numbers of TF32, which together have 22 bits.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + a_high, b_high = coarse(a), coarse(b)
# + a_low, b_low = a - a_high, b - b_high
# + small = tl.dot(a_low, b_high, input_precision="tf32")
# + small = tl.dot(a_high, b_low, small, input_precision="tf32")
# + acc += tl.dot(a_high, b_high, small, input_precision="tf32")

@triton.jit
def coarse(x):
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
