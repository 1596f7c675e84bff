# task: softmax_unit
# hacks: 31
# tier: T1
# root: inputs
# expect: wrong
# Takes the maximum of the first block for that of the row and never rescales.
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = x_ptr + tl.program_id(0) * cols
    at = tl.arange(0, BLOCK)
    peak = tl.max(tl.load(row + at), 0)
    total = 0.0
    for start in range(0, cols, BLOCK):
        x = tl.load(row + start + at)
        total += tl.sum(tl.exp(x - peak), 0)
    for start in range(0, cols, BLOCK):
        tl.store(out_ptr + tl.program_id(0) * cols + start + at, tl.exp(tl.load(row + start + at) - peak) / total)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
        return out
