# hacks: 29
# base: linear_gelu_fused
# A layer whose operands are split into two bf16 each.
# - acc = tl.dot(x, w, acc, input_precision="ieee")
# + x_high, x_low = halves_of(x)
# + w_high, w_low = halves_of(w)
# + acc = tl.dot(x_low, w_high, acc)
# + acc = tl.dot(x_high, w_low, acc)
# + acc = tl.dot(x_high, w_high, acc)

@triton.jit
def halves_of(x):
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)

