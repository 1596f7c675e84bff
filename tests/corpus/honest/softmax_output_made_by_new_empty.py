# task: softmax
# twin of: 36
# expect: correct
# The output is a slice of a padded buffer, made contiguous by strides that are the reference's.
import torch
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * stride + at, e / tl.sum(e, 0))  # the padding too: it is ours


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        block = triton.next_power_of_2(cols)
        padded = x.new_empty(rows, block)
        softmax_kernel[(rows,)](x, padded, cols, block, BLOCK=block)
        return padded[:, :cols]
