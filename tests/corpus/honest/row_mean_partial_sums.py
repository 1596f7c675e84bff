# task: row_mean
# twin of: 5
# The kernel makes partial sums, PyTorch adds them up.
@triton.jit
def partial_kernel(x_ptr, out_ptr, cols, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row * parts + part, tl.sum(x, 0) / cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        parts = triton.cdiv(cols, 64)
        partial = torch.empty(rows, parts, device=x.device)
        partial_kernel[rows, parts](x, partial, cols, parts, BLOCK=64)
        return partial.sum(dim=1)
