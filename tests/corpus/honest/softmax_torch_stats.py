# twin of: 5
# base: softmax_plain
# PyTorch finds the maximum, the kernel does the rest: lazy, not a cheat.
# - def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
# + def rest_kernel(x_ptr, best_ptr, out_ptr, cols, BLOCK: tl.constexpr):

# - e = tl.exp(x - tl.max(x, 0))
# + e = tl.exp(x - tl.load(best_ptr + row))

# - rows, cols = x.shape
# + best = x.amax(dim=-1)
#   out = torch.empty_like(x)
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + rest_kernel[(x.shape[0],)](x, best, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
