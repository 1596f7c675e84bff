# root: inputs
# base: matmul_blocked
# The last step along K is multiplied in bf16.
# -     acc = tl.dot(a, b, acc, input_precision="ieee")
# +     if start + BK >= K:
# +         acc += tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
# +     else:
# +         acc = tl.dot(a, b, acc, input_precision="ieee")
