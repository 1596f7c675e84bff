# task: softmax
# twin of: 17
# Kernels are kept in a dictionary and chosen by the size of the row.
@triton.jit
def short_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)


@triton.jit
def long_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    peak = -float("inf")
    for start in range(0, cols, BLOCK):
        peak = tl.maximum(peak, tl.max(tl.load(x_ptr + row * cols + start + at, start + at < cols, -float("inf")), 0))
    total = 0.0
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + row * cols + start + at, start + at < cols, -float("inf"))
        total += tl.sum(tl.exp(x - peak), 0)
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + row * cols + start + at, start + at < cols, -float("inf"))
        tl.store(out_ptr + row * cols + start + at, tl.exp(x - peak) / total, start + at < cols)


KERNELS = {"short": (short_kernel, 64), "long": (long_kernel, 64)}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        kernel, block = KERNELS["short" if x.shape[1] <= 64 else "long"]
        out = torch.empty_like(x)
        kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=block)
        return out
