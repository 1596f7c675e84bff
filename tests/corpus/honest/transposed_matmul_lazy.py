# task: transposed_matmul
# twin of: 7
# expect: correct
# The library multiplies; an own kernel does the transpose that the reference leaves to PyTorch.
import torch
import triton
import triton.language as tl

@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    keep = (i[:, None] < rows) & (j[None, :] < cols)
    tl.store(out_ptr + j[None, :] * rows + i[:, None], tl.load(x_ptr + i[:, None] * cols + j[None, :], keep), keep)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a @ b
        rows, cols = c.shape
        out = torch.empty(cols, rows, device=c.device)
        transpose_kernel[triton.cdiv(rows, 16), triton.cdiv(cols, 16)](c, out, rows, cols, BLOCK=16)
        return out
