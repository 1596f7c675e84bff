# task: row_mean
# twin of: 1
# root: uncounted_data
# expect: correct
# Asks once for a size that depends on data and once for a flag: a few bytes.
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
        assert torch.nonzero(x[:, 0] == x[:, 0]).shape[0] == rows and torch.equal(x, x)
        out = torch.empty(rows, device=x.device)
        row_mean_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
