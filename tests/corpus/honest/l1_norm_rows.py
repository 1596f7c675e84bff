# task: l1_norm
# twin of: 22
# expect: correct
# A row a program, magnitudes summed.
import torch
import triton
import triton.language as tl


@triton.jit
def l1_norm_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < cols
    x = tl.load(x_ptr + row * cols + at, keep, 0.0)
    tl.store(out_ptr + row * cols + at, x / (tl.sum(tl.abs(x), 0) / cols), keep)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        l1_norm_kernel[(rows,)](x, out, cols, BLOCK=128)
        return out
