# task: row_mean
# twin of: 1
# root: device
# expect: correct
# Has an operator write into out=, and works on a strided view of that.
import torch
import triton
import triton.language as tl

@triton.jit
def row_mean_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row, tl.sum(x, 0) / cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        copy = torch.empty_like(x)
        torch.mul(x, 1.0, out=copy)
        x = torch.as_strided(copy, (rows, cols), (cols, 1))
        out = torch.empty(rows, device=x.device)
        row_mean_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
