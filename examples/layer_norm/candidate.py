"""Layer norm in one kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    """One program a row; mean and variance from the same registers."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < cols
    x = tl.load(x_ptr + row * cols + at, keep, 0.0)
    centred = tl.where(keep, x - tl.sum(x, 0) / cols, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / cols + eps)
    weight = tl.load(weight_ptr + at, keep)
    bias = tl.load(bias_ptr + at, keep)
    tl.store(out_ptr + row * cols + at, centred * scale * weight + bias, keep)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(768)

    def forward(self, x):
        rows, cols = x.shape
        norm = self.norm
        out = torch.empty_like(x)
        layer_norm_kernel[(rows,)](x, norm.weight, norm.bias, out, cols, norm.eps, BLOCK=triton.next_power_of_2(cols))
        return out
