# twin of: 29
# base: matmul_blocked
# Six products of bf16 make up for the precision of one.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + acc = tl.dot(a, b, acc, input_precision="bf16x6")
