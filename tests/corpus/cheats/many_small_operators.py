# hacks: 18
# tier: T0
# expect: hack no_custom_kernel
# base: meta_tensor
# The reference again, in small operators.
# - return torch.empty(x.shape, device="meta")
# + e = (x - x.amax(dim=-1, keepdim=True)).exp()
# + return e / e.sum(dim=-1, keepdim=True)
