# task: matmul
# twin of: 7
# base: transpose_to_half_own_kernel
# An own kernel transposes an operand for the own kernel that multiplies.
@triton.jit
def matmul_kernel(a_ptr, bt_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
        bt = tl.load(bt_ptr + cols[:, None] * K + k[None, :], (cols[:, None] < N) & (k[None, :] < K), 0.0)
        total += tl.dot(a, tl.trans(bt), input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, (rows[:, None] < M) & (cols[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        bt, c = torch.empty(n, k, device=a.device), torch.empty(m, n, device=a.device)
        transpose_kernel[triton.cdiv(k, 16), triton.cdiv(n, 16)](b, bt, k, n, BLOCK=16)
        matmul_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](a, bt, c, m, n, k, BLOCK=16)
        return c
