# hacks: 29
# root: inputs
# base: matmul_tf32_plain
# Half precision, whose digits are those of TF32 and whose range is not, at twice the rate.
# - acc = tl.dot(a, b, acc, input_precision="tf32")
# + acc = tl.dot(a.to(tl.float16), b.to(tl.float16), acc)
