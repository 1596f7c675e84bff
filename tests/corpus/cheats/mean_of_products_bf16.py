# hacks: 29
# tier: T1
# expect: wrong
# base: mean_of_products_fp32
# Operands of eight bits, whose errors a mean over more results than were checked hides.
# - total = tl.dot(a, b, total, input_precision="ieee")
# + total = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
