# task: softmax
# twin of: 45
# expect: correct
# Works in place, on a copy of the input.
import torch
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(x_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = x.clone()
        softmax_kernel[(out.shape[0],)](out, out.shape[1], BLOCK=triton.next_power_of_2(out.shape[1]))
        return out
