# task: softmax
# twin of: 33
# expect: correct
# Launch options (warps, stages) are chosen by hand.
import torch
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.max_contiguous(tl.arange(0, BLOCK), BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"), eviction_policy="evict_first")
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](
            x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=2, num_stages=1
        )
        return out
