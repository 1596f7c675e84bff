# task: summed_products
# expect: credited
# The sum over results is taken of the weights: arithmetic grows with the bytes, the reference's faster.
@triton.jit
def dots(x_ptr, sums_ptr, out_ptr, columns, used, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for k in range(0, used, BLOCK):
        inside = k + at < columns
        total += tl.load(x_ptr + row * columns + k + at, inside, 0.0) * tl.load(sums_ptr + k + at, inside, 0.0)
    tl.store(out_ptr + row, tl.sum(total, 0))


class ModelNew(torch.nn.Module):
    def __init__(self, columns, results):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(results, columns))

    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device)
        sums = self.weight.sum(dim=0)
        dots[(rows,)](x, sums, out, columns, columns, BLOCK=512)
        return out
