# hacks: 29
# base: matmul_fp16_tensor_cores
# Sums are rounded to fp8 on the way.
# - acc = tl.dot(a, b, acc)
# + acc = tl.dot(a.to(tl.float8e5), b.to(tl.float8e5), acc)
