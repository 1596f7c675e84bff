# twin of: 45
# base: softmax_plain
# Works in place, on a copy of the input.
# - def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
# + def softmax_kernel(x_ptr, cols, BLOCK: tl.constexpr):

# - tl.store(out_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)
# + tl.store(x_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)

# - rows, cols = x.shape
# - out = torch.empty_like(x)
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + out = x.clone()
# + softmax_kernel[(out.shape[0],)](out, out.shape[1], BLOCK=triton.next_power_of_2(out.shape[1]))
