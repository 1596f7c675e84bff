# task: softmax
# twin of: 52
# expect: correct
# Block pointers.
import torch
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    src = tl.make_block_ptr(x_ptr, (rows, cols), (cols, 1), (row, 0), (1, BLOCK), (1, 0))
    dst = tl.make_block_ptr(out_ptr, (rows, cols), (cols, 1), (row, 0), (1, BLOCK), (1, 0))
    x = tl.load(src, boundary_check=(0, 1), padding_option="zero")
    x = tl.where(tl.arange(0, BLOCK)[None, :] < cols, x, -float("inf"))
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(dst, e / tl.sum(e, 1)[:, None], boundary_check=(0, 1))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[x.shape[0], 1](x, out, x.shape[0], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
