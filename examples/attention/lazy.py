"""Lazy: PyTorch multiplies twice, the kernel does the softmax."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    """One program a row: the row is read once and stays in registers."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        p = torch.empty_like(scores)
        cols = scores.shape[-1]
        softmax_kernel[(scores.numel() // cols,)](scores, p, cols, BLOCK=triton.next_power_of_2(cols))
        return p @ v
