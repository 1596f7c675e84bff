# task: long_softmax
# expect: credited
# Programs of a row find its maximum by atomics, which Triton makes of two on whole numbers, by the sign.
@triton.jit
def maxima(x_ptr, top_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(top_ptr + row, tl.max(tl.load(x_ptr + row * cols + at, at < cols, -float("inf")), 0))


@triton.jit
def sums(x_ptr, top_ptr, sum_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    tl.atomic_add(sum_ptr + row, tl.sum(tl.exp(value - tl.load(top_ptr + row)), 0))


@triton.jit
def shares(x_ptr, top_ptr, sum_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.exp(tl.load(x_ptr + row * cols + at, at < cols) - tl.load(top_ptr + row))
    tl.store(out_ptr + row * cols + at, value / tl.load(sum_ptr + row), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        top = torch.full((rows,), -float("inf"), device=x.device)
        total = torch.zeros(rows, device=x.device)
        out = torch.empty_like(x)
        grid = (rows, triton.cdiv(cols, 1024))
        maxima[grid](x, top, cols, BLOCK=1024)
        sums[grid](x, top, total, cols, BLOCK=1024)
        shares[grid](x, top, total, out, cols, BLOCK=1024)
        return out
