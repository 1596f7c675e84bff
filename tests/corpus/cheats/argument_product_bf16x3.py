# hacks: 29
# root: inputs
# base: argument_product
# Three products of bf16 for what it writes into its argument, beside an output of the argument's form.
# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + acc = tl.dot(a, b, acc, input_precision="bf16x3")
