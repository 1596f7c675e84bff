# task: dice
# root: sizes
# expect: credited
# Programs add their parts of three sums up by atomics; the last one of a row makes its answer of them.
@triton.jit
def dice(x_ptr, y_ptr, sums_ptr, ticket_ptr, out_ptr, cols, width, parts, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    first = tl.program_id(0) * width
    both, mine, theirs = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for start in range(first, tl.minimum(first + width, cols), BLOCK):
        at = start + tl.arange(0, BLOCK)
        p = tl.sigmoid(tl.load(x_ptr + row * cols + at, at < cols, float("-inf")))
        y = tl.load(y_ptr + row * cols + at, at < cols, 0.0)
        both, mine, theirs = both + p * y, mine + p, theirs + y
    sums = sums_ptr + row * 3
    tl.atomic_add(sums, tl.sum(both, 0), sem="relaxed")
    tl.atomic_add(sums + 1, tl.sum(mine, 0), sem="relaxed")
    tl.atomic_add(sums + 2, tl.sum(theirs, 0), sem="relaxed")
    if tl.atomic_add(ticket_ptr + row, 1, sem="acq_rel") == parts - 1:
        tl.store(out_ptr + row, 1 - (2 * tl.load(sums) + 1) / (tl.load(sums + 1) + tl.load(sums + 2) + 1))


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        rows, cols = x.shape
        block = 64 if cols < 4096 else 1024
        width = 4 * block
        parts = triton.cdiv(cols, width)
        sums = torch.zeros(rows * 3, device=x.device)
        ticket = torch.zeros(rows, dtype=torch.int32, device=x.device)
        out = torch.empty(rows, device=x.device)
        dice[(parts, rows)](x, y, sums, ticket, out, cols, width, parts, BLOCK=block)
        return out
