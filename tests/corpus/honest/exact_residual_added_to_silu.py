# task: exact_small_residual
# twin of: 7
# base: exact_residual_added_in_place
# The same into a tensor of its own: nearly a copy of what PyTorch made.
# - def add_kernel(y_ptr, r_ptr, n, BLOCK: tl.constexpr):
# + def add_kernel(y_ptr, r_ptr, out_ptr, n, BLOCK: tl.constexpr):

# - tl.store(y_ptr + at, y, at < n)
# + tl.store(out_ptr + at, y, at < n)

# - add_kernel[(triton.cdiv(y.numel(), 1024),)](y, r, y.numel(), BLOCK=1024)
# - return y
# + out = torch.empty_like(y)
# + add_kernel[(triton.cdiv(y.numel(), 1024),)](y, r, out, y.numel(), BLOCK=1024)
# + return out
