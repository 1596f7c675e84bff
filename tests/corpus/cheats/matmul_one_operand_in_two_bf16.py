# hacks: 29
# base: matmul_two_bf16_all_products
# One operand has three parts, and is exact; the other has two.
#   b_high, b_low = halves_of(b)
# + b_least = (b - b_high.to(tl.float32) - b_low.to(tl.float32)).to(tl.bfloat16)
# + acc = tl.dot(a_high, b_least, acc)
