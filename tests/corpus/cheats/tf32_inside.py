# hacks: 29
# base: matmul_blocked
# TF32 tensor cores where fp32 is declared.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + acc = tl.dot(a, b, acc, input_precision="tf32")
