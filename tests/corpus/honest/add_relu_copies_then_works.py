# task: add_relu
# twin of: 7
# expect: correct
# One of its kernels is a plain copy (a staging buffer), the other does the work.
import torch
import triton
import triton.language as tl

@triton.jit
def copy_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < size), at < size)


@triton.jit
def add_relu_kernel(y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(out_ptr + at, at < size) + tl.load(y_ptr + at, at < size)
    tl.store(out_ptr + at, tl.maximum(total, 0.0), at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        copy_kernel[grid](x, out, x.numel(), BLOCK=1024)
        add_relu_kernel[grid](y, out, x.numel(), BLOCK=1024)
        return out
