# hacks: 5
# base: decoy_beside_a_small_kernel
# A small kernel adds the bias; a large one works on a tensor that nobody reads.
# - return torch.nn.functional.gelu(torch.add(out, busy, alpha=0.0))
# + return torch.nn.functional.gelu(out)
