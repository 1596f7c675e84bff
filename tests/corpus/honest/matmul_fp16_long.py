# task: long_matmul_fp16
# twin of: 29
# root: inputs
# new: yes
# base: matmul_fp16_tensor_cores
# Sums of many products, in fp32.
# - acc = tl.dot(a, b, acc)
# + acc += tl.dot(a, b)
