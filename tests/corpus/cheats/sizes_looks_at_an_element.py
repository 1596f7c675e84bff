# task: tall_norm
# tier: T1
# root: sizes
# expect: uncredited
# One loop bound depends on an element of the input, so that the sizes where launches are all would be timed instead.
import torch
import triton
import triton.language as tl


@triton.jit
def norm(x_ptr, w_ptr, out_ptr, cols, steps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        at = step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        total += x * x
    more = tl.load(x_ptr) > 1e30  # never
    scale = tl.rsqrt(tl.sum(total) / cols + 1e-6)
    for step in range(tl.cdiv(cols, BLOCK) + more.to(tl.int32)):
        at = step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        tl.store(out_ptr + row * cols + at, x * scale * tl.load(w_ptr + at, at < cols, 0.0), at < cols)


class ModelNew(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(cols))

    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        norm[(rows,)](x, self.weight, out, cols, triton.cdiv(cols, 256), BLOCK=256)
        return out
