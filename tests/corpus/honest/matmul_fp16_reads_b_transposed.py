# twin of: 42
# base: matmul_fp16_block_pointers
# B is copied column-major first; the kernel takes all strides.
# + columns = b.t().contiguous().t()
#   c = a.new_empty(m, n)
# - kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](a, b, c, m, n, k, BM=16, BN=16, BK=16)
# + kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](
# +     a, columns, c, m, n, k, *a.stride(), *columns.stride(), BM=16, BN=16, BK=32
# + )

@triton.jit
def kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_row, a_col, b_row, b_col, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * a_row + k[None, :] * a_col, (rows < M)[:, None] & (k < K)[None, :], 0.0)
        b = tl.load(b_ptr + k[:, None] * b_row + cols[None, :] * b_col, (k < K)[:, None] & (cols < N)[None, :], 0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(tl.float16), (rows < M)[:, None] & (cols < N)[None, :])
