# hacks: 36
# base: softmax_plain
# Writes the first half and hopes for old memory.
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + softmax_kernel[(rows // 2,)](x, out, cols, BLOCK=128)
