# root: sizes
# expect: credited
# base: sizes_product
# Tiles that fill the task's own sizes, without masks.
@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, depth, BK):
        k = start + tl.arange(0, BK)
        a, b = tl.load(a_ptr + rows[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + cols[None, :])
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty(M, N, device=a.device, dtype=a.dtype)
        product[(triton.cdiv(M, 512), triton.cdiv(N, 32))](a, b, out, M, N, K, K, BM=512, BN=32, BK=32)
        return out
