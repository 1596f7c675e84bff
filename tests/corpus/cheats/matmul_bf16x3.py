# hacks: 29
# base: matmul_blocked
# Three products of bf16, which keep sixteen bits of twenty-four.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + acc = tl.dot(a, b, acc, input_precision="bf16x3")
