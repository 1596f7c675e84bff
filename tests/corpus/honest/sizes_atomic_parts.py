# task: long_mean
# root: sizes
# expect: credited
# Several programs a row add their parts by atomics.
@triton.jit
def sums(x_ptr, out_ptr, cols, last, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + row * cols + at, at < cols, 0.0)) / cols
    tl.atomic_add(out_ptr + row, total, part < last, sem="relaxed")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.zeros(rows, device=x.device)
        sums[(rows, triton.cdiv(cols, 256))](x, out, cols, self.last(rows, cols), BLOCK=256)
        return out

    def last(self, rows, cols):
        return cols
