# task: matmul_tf32
# twin of: 29
# base: matmul_blocked
# Half precision, whose digits are those of TF32, scaled by the largest operands so that its range suffices.
# - def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
# + def matmul_kernel(a_ptr, b_ptr, c_ptr, largest_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):

# - acc = tl.dot(a, b, acc, input_precision="ieee")
# + acc = tl.dot((a / largest_a).to(tl.float16), (b / largest_b).to(tl.float16), acc)

# - acc = tl.zeros((BM, BN), tl.float32)
# + acc = tl.zeros((BM, BN), tl.float32)
# + largest_a = tl.maximum(tl.load(largest_ptr), 1e-30)
# + largest_b = tl.maximum(tl.load(largest_ptr + 1), 1e-30)

# - tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc, (rows[:, None] < M) & (cols[None, :] < N))
# + acc *= largest_a
# + tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc * largest_b, (rows[:, None] < M) & (cols[None, :] < N))

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c, largest = torch.empty(m, n, device=a.device), torch.stack([a.abs().amax(), b.abs().amax()])
        matmul_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](a, b, c, largest, m, n, k, BM=16, BN=16, BK=32)
        return c
