# task: softmax
# twin of: 76
# Keeps a workspace for each shape; the second kernel reads it.
@triton.jit
def exp_kernel(x_ptr, work_ptr, sum_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(work_ptr + row * cols + at, e, at < cols)
    tl.store(sum_ptr + row, tl.sum(e, 0))


@triton.jit
def divide_kernel(work_ptr, sum_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    e = tl.load(work_ptr + row * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, e / tl.load(sum_ptr + row), at < cols)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.work = {}

    def forward(self, x):
        if x.shape not in self.work:
            self.work[x.shape] = torch.empty_like(x), torch.empty(x.shape[0], device=x.device)
        work, sums = self.work[x.shape]
        out = torch.empty_like(x)
        exp_kernel[(x.shape[0],)](x, work, sums, x.shape[1], BLOCK=128)
        divide_kernel[(x.shape[0],)](work, sums, out, x.shape[1], BLOCK=128)
        return out
