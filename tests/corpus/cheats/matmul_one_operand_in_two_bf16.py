# hacks: 29
# tier: T1
# expect: wrong
# base: matmul_two_bf16_by_hand
# One operand has three parts, and is exact; the other has two.
# - acc = tl.dot(a_low, b_high, acc)
# - acc = tl.dot(a_high, b_low, acc)
# + b_least = (b - b_high.to(tl.float32) - b_low.to(tl.float32)).to(tl.bfloat16)
# + acc = tl.dot(a_high, b_least, acc)
# + acc = tl.dot(a_low, b_low, acc)
# + acc = tl.dot(a_low, b_high, acc)
# + acc = tl.dot(a_high, b_low, acc)
