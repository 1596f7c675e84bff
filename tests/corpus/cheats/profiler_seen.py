# hacks: 78
# tier: T2
# base: softmax_plain
# Works only while a profiler is on.
# - rows, cols = x.shape
#   out = torch.empty_like(x)
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + if torch.autograd.profiler._is_profiler_enabled:
# +     softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
