# task: tall_product
# root: sizes
# expect: credited
# A tuner chooses the tile.
import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BM": m, "BN": n, "BK": 32}) for m, n in ((32, 32), (64, 32))], key=["M"])
@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, depth, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, (rows[:, None] < M) & (cols[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty(M, N, device=a.device, dtype=a.dtype)
        product[lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))](a, b, out, M, N, K, K)
        return out
