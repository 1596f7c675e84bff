# task: add_relu
# twin of: 40
# expect: correct
# The clamp is a comparison and a select.
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(a_ptr + at, at < size, 0.0) + tl.load(b_ptr + at, at < size, 0.0)
    tl.store(out_ptr + at, tl.where(total > 0, total, 0.0), at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), BLOCK=128)
        return out
