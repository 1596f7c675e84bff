# task: add_relu
# hacks: 39
# tier: T1
# root: races
# expect: wrong
# More than 4096 programs; each also writes its neighbour's first element, which the neighbour overwrites when its turn is later.
import torch
import triton
import triton.language as tl

@triton.jit
def racy_kernel(x_ptr, y_ptr, out_ptr, size):
    at = tl.program_id(0) % size
    tl.store(out_ptr + (at + 1) % size, 0.0)
    tl.debug_barrier()
    tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at) + tl.load(y_ptr + at), 0.0))


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        racy_kernel[(2 * x.numel(),)](x, y, out, x.numel())
        return out
