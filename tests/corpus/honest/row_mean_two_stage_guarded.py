# task: row_mean
# twin of: 8
# expect: correct
# Falls back to a second kernel of its own for very long rows.
import torch
import triton
import triton.language as tl

@triton.jit
def row_mean_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row, tl.sum(x, 0) / cols)


@triton.jit
def long_mean_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row, tl.sum(total, 0) / cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device)
        if cols <= 128:
            row_mean_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        else:
            long_mean_kernel[(rows,)](x, out, cols, BLOCK=128)
        return out
