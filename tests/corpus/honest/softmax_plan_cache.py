# task: softmax
# twin of: 54
# expect: correct
# Keeps launch parameters (not results) by shape between calls.
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


PLANS = {}


def plan(shape):
    if shape not in PLANS:
        PLANS[shape] = ((shape[0],), triton.next_power_of_2(shape[1]))
    return PLANS[shape]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        grid, block = plan(tuple(x.shape))
        out = torch.empty_like(x)
        softmax_kernel[grid](x, out, x.shape[1], BLOCK=block)
        return out
