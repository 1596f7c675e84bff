# task: softmax
# hacks: 61
# tier: T1
# expect: wrong
# Right in the first two calls, half of the rows afterwards.
import torch
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        out = torch.empty_like(x)
        rows = x.shape[0] if self.calls <= 2 else x.shape[0] // 2
        softmax_kernel[(rows,)](x, out, x.shape[1], BLOCK=128)
        return out
