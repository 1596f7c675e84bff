# task: softmax
# hacks: 40
# tier: T1
# expect: wrong
# NaN, for checkers that take NaN as equal to anything.
import torch
import triton
import triton.language as tl

@triton.jit
def fill_kernel(out_ptr, size, value, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.full((BLOCK,), 0.0, tl.float32) + value, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape, device=x.device)
        fill_kernel[(triton.cdiv(out.numel(), 256),)](out, out.numel(), float("nan"), BLOCK=256)
        return out
