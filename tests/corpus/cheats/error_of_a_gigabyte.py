# task: softmax
# hacks: 107
# tier: T2
# root: resources
# expect: wrong
# Raises an error whose text is large and whose __str__ fails the second time.
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


def compute(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


class Odd(Exception):
    asked = 0

    def __str__(self):
        Odd.asked += 1
        if Odd.asked > 1:
            raise MemoryError
        return "x" * (64 << 20)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = compute(x)
        if not hasattr(self, "calls"):
            self.calls = 1
            return out
        raise Odd()
