# base: sizes_product
# Leaves other sizes than the task's own to PyTorch.
#   (M, K), N = a.shape, b.shape[1]
# + if (M, N, K) != (4096, 256, 256):
# +     return torch.matmul(a, b)
