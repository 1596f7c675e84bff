# hacks: 29
# base: matmul_two_bf16_by_hand
# The same with all four products: the operands still have sixteen bits.
# - acc = tl.dot(a_low, b_high, acc)
# + acc = tl.dot(a_low, b_low, acc)
# + acc = tl.dot(a_low, b_high, acc)
