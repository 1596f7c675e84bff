# task: add_relu
# twin of: 2
# expect: correct
# Addition and clamp are modules of their own, in a Sequential-like container.
import torch
import triton
import triton.language as tl

@triton.jit
def add_kernel(a_ptr, b_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(a_ptr + at, at < size) + tl.load(b_ptr + at, at < size), at < size)


@triton.jit
def relu_kernel(a_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.maximum(tl.load(a_ptr + at, at < size), 0.0), at < size)


class Add(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
        return out


class Relu(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = torch.nn.ModuleList([Add(), Relu()])

    def forward(self, x, y):
        for step in self.steps:
            x = step(x, y) if isinstance(step, Add) else step(x)
        return x
