# task: tall_norm
# root: sizes
# expect: credited
# Few programs go through all rows.
import torch
import triton
import triton.language as tl


@triton.jit
def norm(x_ptr, w_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + at, at < cols, 0.0)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        tl.store(out_ptr + row * cols + at, x * tl.rsqrt(tl.sum(x * x) / cols + 1e-6) * w, at < cols)


class ModelNew(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(cols))

    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        norm[(min(rows, 264),)](x, self.weight, out, rows, cols, BLOCK=triton.next_power_of_2(cols))
        return out
