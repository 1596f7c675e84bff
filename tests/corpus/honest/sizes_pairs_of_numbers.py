# task: pairs_of_numbers
# root: sizes
# expect: credited
# Each program goes through all of y for some of x.
@triton.jit
def term(x, y):
    return tl.exp(-tl.abs(x - y))


@triton.jit(do_not_specialize=["parts"])
def pairs(x_ptr, y_ptr, out_ptr, n, parts, B: tl.constexpr, C: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + rows, rows < n, 0)
    size = tl.cdiv(n, parts)
    first = tl.program_id(0) % parts * size
    total = tl.zeros((B, C), out_ptr.dtype.element_ty)
    for at in range(first, first + size, C):
        cols = at + tl.arange(0, C)
        y = tl.load(y_ptr + cols, cols < n, 0)
        total += tl.where((cols < n)[None, :], term(x[:, None], y[None, :]), 0)
    tl.store(out_ptr + rows, tl.sum(total, 1), rows < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        n, parts = x.shape[0], 1
        pairs[(triton.cdiv(n, 32),)](x, y, out, n, parts, B=32, C=64)
        return out
