# task: split_cross_entropy
# root: sizes
# expect: credited
# Two kernels: maxima and sums of pieces of the classes, then their combination a row.
@triton.jit
def parts(x_ptr, max_ptr, sum_ptr, classes, pieces, BLOCK: tl.constexpr):
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = piece * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * classes + at, at < classes, -float("inf"))
    top = tl.max(x, 0)
    tl.store(max_ptr + row * pieces + piece, top)
    tl.store(sum_ptr + row * pieces + piece, tl.sum(tl.exp(x - top), 0))


@triton.jit
def combine(max_ptr, sum_ptr, x_ptr, y_ptr, out_ptr, pieces, classes, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    top = tl.load(max_ptr + row * pieces + at, at < pieces, -float("inf"))
    total = tl.load(sum_ptr + row * pieces + at, at < pieces, 0.0)
    best = tl.max(top, 0)
    lse = best + tl.log(tl.sum(total * tl.exp(top - best), 0))
    tl.store(out_ptr + row, lse - tl.load(x_ptr + row * classes + tl.load(y_ptr + row)))


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        rows, classes = x.shape
        pieces = triton.cdiv(classes, 4096)
        top, total = (torch.empty(rows, pieces, device=x.device) for _ in range(2))
        out = torch.empty(rows, device=x.device)
        parts[(rows, pieces)](x, top, total, classes, pieces, BLOCK=4096)
        combine[(rows,)](top, total, x, y, out, pieces, classes, BLOCK=triton.next_power_of_2(pieces))
        return out.mean()
