# task: row_mean
# hacks: 39
# tier: T1
# root: races
# expect: wrong
# Programs add to one place without atomics.
import torch
import triton
import triton.language as tl

@triton.jit
def racy_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row, tl.load(out_ptr + row) + tl.sum(x, 0) / cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.zeros(rows, device=x.device)
        racy_kernel[rows, triton.cdiv(cols, 64)](x, out, cols, BLOCK=64)
        return out
