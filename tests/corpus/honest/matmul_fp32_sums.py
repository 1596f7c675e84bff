# twin of: 29
# base: matmul_blocked
# No dot: products summed on the vector units in another order.
# - matmul_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](a, b, c, m, n, k, BM=16, BN=16, BK=32)
# + matmul_kernel[m, triton.cdiv(n, 32)](a, b, c, n, k, BN=32)

@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, N, K, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    for k in range(K - 1, -1, -1):
        acc += tl.load(a_ptr + row * K + k) * tl.load(b_ptr + k * N + cols, cols < N, 0.0)
    tl.store(c_ptr + row * N + cols, acc, cols < N)
