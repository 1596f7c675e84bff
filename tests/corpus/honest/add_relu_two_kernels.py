# task: add_relu
# twin of: 7
# expect: correct
# Two kernels, the second in place on the first one's result.
import torch
import triton
import triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < size) + tl.load(y_ptr + at, at < size), at < size)


@triton.jit
def relu_kernel(out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.maximum(tl.load(out_ptr + at, at < size), 0.0), at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 256),)
        add_kernel[grid](x, y, out, x.numel(), BLOCK=256)
        relu_kernel[grid](out, x.numel(), BLOCK=256)
        return out
