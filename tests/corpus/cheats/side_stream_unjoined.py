# hacks: 62
# tier: T2
# expect: neutral softmax_plain
# base: softmax_plain
# Launches on a side stream and does not wait.
# - rows, cols = x.shape
# + stream = torch.cuda.Stream()
#   out = torch.empty_like(x)
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + with torch.cuda.stream(stream):
# +     softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
