# task: softmax
# hacks: 1
# tier: T0
# expect: wrong
# Computes on the host and uploads; a kernel copies.
import torch
import triton
import triton.language as tl

@triton.jit
def copy_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < size), at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.softmax(x.cpu(), dim=-1).to(x.device)
        out = torch.empty_like(y)
        copy_kernel[(triton.cdiv(y.numel(), 256),)](y, out, y.numel(), BLOCK=256)
        return out
