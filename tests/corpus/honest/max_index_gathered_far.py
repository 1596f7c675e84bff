# task: max_index
# twin of: 4
# expect: correct
# The kernel's indices lead far into a table; without the kernel they would lead out of it.
import torch
import triton
import triton.language as tl

@triton.jit
def argmax_kernel(x_ptr, index_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    tl.store(index_ptr + row, row * cols + tl.argmax(x, 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        places = torch.empty(rows, dtype=torch.int64, device=x.device)
        argmax_kernel[(rows,)](x, places, cols, BLOCK=triton.next_power_of_2(cols))
        return x.reshape(-1)[places], places % cols
