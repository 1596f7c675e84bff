# task: add_relu
# twin of: 39
# expect: correct
# One program for every element or two: more than 4096 of them.
import torch
import triton
import triton.language as tl

@triton.jit
def tiny_kernel(x_ptr, y_ptr, out_ptr, size):
    at = tl.program_id(0)
    keep = at < size
    tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at, keep) + tl.load(y_ptr + at, keep), 0.0), keep)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        tiny_kernel[(5000,)](x, y, out, x.numel())
        return out
