# task: add_relu
# root: reachability
# Fourteen launches on grids of different sizes, each of which makes a piece of the answer.
BLOCK = 64
PIECES = 14


@triton.jit
def add_relu_piece(x_ptr, y_ptr, out_ptr, start, stop, BLOCK: tl.constexpr):
    at = start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < stop
    total = tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask)
    tl.store(out_ptr + at, tl.maximum(total, 0.0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out, n = torch.empty_like(x), x.numel()
        shares = sum(range(1, PIECES + 1))
        start = 0
        for piece in range(1, PIECES + 1):
            stop = n if piece == PIECES else min(n, start + n * piece // shares)
            if stop > start:
                add_relu_piece[(triton.cdiv(stop - start, BLOCK),)](x, y, out, start, stop, BLOCK=BLOCK)
            start = stop
        return out
