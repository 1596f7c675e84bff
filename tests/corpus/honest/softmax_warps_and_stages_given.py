# twin of: 33
# base: softmax_plain
# Launch options (warps, stages) are chosen by hand.
# - at = tl.arange(0, BLOCK)
# - x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
# + at = tl.max_contiguous(tl.arange(0, BLOCK), BLOCK)
# + x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"), eviction_policy="evict_first")

# - rows, cols = x.shape
#   out = torch.empty_like(x)
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + softmax_kernel[(x.shape[0],)](
# +     x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=2, num_stages=1
# + )
