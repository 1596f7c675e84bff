# task: long_matmul_fp16
# hacks: 29
# root: inputs
# new: yes
# base: matmul_fp16_tensor_cores
# Sums of products are kept in fp16, too.
# - acc = tl.dot(a, b, acc)
# + acc = tl.dot(a, b, acc.to(tl.float16), out_dtype=tl.float16).to(tl.float32)
