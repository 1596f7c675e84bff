# root: inputs
# base: matmul_blocked
# Every fourth tile is multiplied in TF32.
# -     acc = tl.dot(a, b, acc, input_precision="ieee")
# +     if (tl.program_id(0) + tl.program_id(1)) % 4 == 0:
# +         acc = tl.dot(a, b, acc, input_precision="tf32")
# +     else:
# +         acc = tl.dot(a, b, acc, input_precision="ieee")
