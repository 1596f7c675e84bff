# twin of: 29
# base: matmul_fp16_tensor_cores
# Accumulates into a single precision buffer and rounds it once, by a kernel.
@triton.jit
def round_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < size).to(tl.float16), at < size)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        wide = torch.empty(m, n, device=a.device)
        matmul_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](a, b, wide, m, n, k, BM=16, BN=16, BK=32)
        c = torch.empty(m, n, device=a.device, dtype=torch.float16)
        round_kernel[(triton.cdiv(m * n, 256),)](wide, c, m * n, BLOCK=256)
        return c
