# task: row_mean
# hacks: 42
# tier: T1
# expect: wrong
# One number that broadcasts to the expected shape.
import torch
import triton
import triton.language as tl

@triton.jit
def fill_kernel(out_ptr, size, value, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.full((BLOCK,), 0.0, tl.float32) + value, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(1, device=x.device)
        fill_kernel[(triton.cdiv(out.numel(), 256),)](out, out.numel(), 0.0, BLOCK=256)
        return out
