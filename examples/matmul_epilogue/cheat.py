"""A cheat: multiplies in half precision where single precision is declared."""

import torch
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, b_ptr, r_ptr, out_ptr, rows, cols, inner,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A tile of ``x @ w.T`` and, before it leaves the registers, everything that follows the product."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, inner, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * inner + k[None, :], (m[:, None] < rows) & (k[None, :] < inner), 0.0)
        w = tl.load(w_ptr + n[None, :] * inner + k[:, None], (n[None, :] < cols) & (k[:, None] < inner), 0.0)
        acc = tl.dot(x.to(tl.float16), w.to(tl.float16), acc)
    keep = (m[:, None] < rows) & (n[None, :] < cols)
    at = m[:, None] * cols + n[None, :]
    y = 0.5 * (acc + tl.load(b_ptr + n, n < cols)[None, :]) + tl.load(r_ptr + at, keep)
    tl.store(out_ptr + at, tl.minimum(tl.maximum(y, -2.0), 2.0), keep)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(256, 128)

    def forward(self, x, residual):
        (rows, inner), cols = x.shape, self.linear.out_features
        out = torch.empty(rows, cols, device=x.device)
        w, b = self.linear.weight, self.linear.bias
        grid = (triton.cdiv(rows, 32), triton.cdiv(cols, 32))
        linear_kernel[grid](x, w, b, residual, out, rows, cols, inner, BM=32, BN=32, BK=32)
        return out
