# twin of: 29
# base: matmul_fp16_block_pointers
# without: kernel
# Program order swizzled for the L2 cache.
# - kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](a, b, c, m, n, k, BM=16, BN=16, BK=16)
# + matmul_kernel[(triton.cdiv(m, 16) * triton.cdiv(n, 16),)](a, b, c, m, n, k, BM=16, BN=16, BK=16)

@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    across = tl.cdiv(N, BN)
    rows = (pid // across) * BM + tl.arange(0, BM)
    cols = (pid % across) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
        acc += tl.dot(a, b)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(tl.float16), (rows[:, None] < M) & (cols[None, :] < N))
