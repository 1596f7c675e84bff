# task: matmul_tf32
# twin of: 29
# base: matmul_blocked
# A product in TF32, which is declared.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + acc = tl.dot(a, b, acc, input_precision="tf32")
