# task: add_relu
# twin of: 60
# expect: correct
# Accumulates into zeros by atomics, then clamps in place.
import torch
import triton
import triton.language as tl

@triton.jit
def accumulate_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + at, tl.load(x_ptr + at, at < size), at < size)


@triton.jit
def relu_kernel(out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.maximum(tl.load(out_ptr + at, at < size), 0.0), at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.zeros_like(x)
        grid = (triton.cdiv(x.numel(), 256),)
        accumulate_kernel[grid](x, out, x.numel(), BLOCK=256)
        accumulate_kernel[grid](y, out, x.numel(), BLOCK=256)
        relu_kernel[grid](out, x.numel(), BLOCK=256)
        return out
