# twin of: 29
# base: linear_gelu_fused
# A layer's product as three of TF32.
# - acc = tl.dot(x, w, acc, input_precision="ieee")
# + acc = tl.dot(x, w, acc, input_precision="tf32x3")
