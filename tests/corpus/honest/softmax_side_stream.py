# task: softmax
# twin of: 62
# expect: correct
# Runs on a side stream and waits for it properly.
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


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = None

    def forward(self, x):
        if self.stream is None:
            self.stream = torch.cuda.Stream()
        rows, cols = x.shape
        out = torch.empty_like(x)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        torch.cuda.current_stream().wait_stream(self.stream)
        return out
