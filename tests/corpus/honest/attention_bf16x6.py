# twin of: 29
# base: attention_three_kernels
# Both products of attention as six of bf16.
# - s = tl.dot(q, k, input_precision="ieee") * scale
# + s = tl.dot(q, k, input_precision="bf16x6") * scale

# - acc = tl.dot(p, v, acc, input_precision="ieee")
# + acc = tl.dot(p, v, acc, input_precision="bf16x6")
