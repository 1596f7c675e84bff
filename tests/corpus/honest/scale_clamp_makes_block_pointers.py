# task: scale_clamp
# twin of: 52
# expect: correct
# Block pointers that are advanced along the row.
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, rows, cols, scale, low, high, R: tl.constexpr, C: tl.constexpr):
    start = tl.program_id(0) * R
    source = tl.make_block_ptr(x_ptr, (rows, cols), (cols, 1), (start, 0), (R, C), (1, 0))
    target = tl.make_block_ptr(out_ptr, (rows, cols), (cols, 1), (start, 0), (R, C), (1, 0))
    for _ in range(0, cols, C):
        x = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, tl.minimum(tl.maximum(x * scale, low), high), boundary_check=(0, 1))
        source = tl.advance(source, (0, C))
        target = tl.advance(target, (0, C))


class ModelNew(torch.nn.Module):
    def __init__(self, low, high):
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x, scale):
        out = torch.empty_like(x)
        rows, cols = x.shape
        kernel[(triton.cdiv(rows, 8),)](x, out, rows, cols, scale, self.low, self.high, R=8, C=32)
        return out
