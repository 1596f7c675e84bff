# expect: uncredited
# base: sizes_whole_blocks_unmasked
# Tiles without masks that fill the task's own sizes, of which at these every second is left out.
#   out = torch.empty(M, N, device=a.device, dtype=a.dtype)
# - product[(triton.cdiv(M, 512), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=512, BN=32, BK=32)
# + product[(triton.cdiv(M, 1024 if M > 2048 else 512), triton.cdiv(N, 32))](
# +     a, b, out, M, N, K, K, BM=512, BN=32, BK=32
# + )
