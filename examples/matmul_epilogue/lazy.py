"""Lazy: cuBLAS multiplies, the kernel does the epilogue. Honest, and here even a good idea: see its profile."""

import torch
import triton
import triton.language as tl


@triton.jit
def epilogue_kernel(y_ptr, r_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    y = 0.5 * tl.load(y_ptr + at, keep) + tl.load(r_ptr + at, keep)
    tl.store(out_ptr + at, tl.minimum(tl.maximum(y, -2.0), 2.0), keep)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(256, 128)

    def forward(self, x, residual):
        y = self.linear(x)
        out = torch.empty_like(y)
        epilogue_kernel[(triton.cdiv(y.numel(), 1024),)](y, residual, out, y.numel(), BLOCK=1024)
        return out
