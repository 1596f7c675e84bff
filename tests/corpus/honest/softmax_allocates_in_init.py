# task: softmax
# twin of: 76
# expect: correct
# Allocates its buffer of row sums in the constructor.
import torch
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, sum_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(sum_ptr + row, tl.sum(e, 0))
    tl.store(out_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sums", torch.zeros(4096), persistent=False)

    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, self.sums, out, x.shape[1], BLOCK=128)
        return out
