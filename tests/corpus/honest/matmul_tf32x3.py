# twin of: 29
# base: matmul_blocked
# Three TF32 products make up for the precision of one.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + acc = tl.dot(a, b, acc, input_precision="tf32x3")
