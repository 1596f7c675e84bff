# task: scanned_rows
# root: reachability
# expect: credited
# Sums of blocks, their running sum, and a scan that starts from it: of one block, the first two change nothing.
@triton.jit
def block_sums(x_ptr, sums_ptr, cols, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(1), tl.program_id(0)
    at = part * BLOCK + tl.arange(0, BLOCK)
    tl.store(sums_ptr + row * parts + part, tl.sum(tl.load(x_ptr + row * cols + at, at < cols, 0.0), 0))


@triton.jit
def before(sums_ptr, parts, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    sums = tl.load(sums_ptr + tl.program_id(0) * parts + at, at < parts, 0.0)
    tl.store(sums_ptr + tl.program_id(0) * parts + at, tl.cumsum(sums, 0) - sums, at < parts)


@triton.jit
def scan(x_ptr, sums_ptr, out_ptr, cols, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(1), tl.program_id(0)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, tl.cumsum(x, 0) + tl.load(sums_ptr + row * parts + part), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        parts = triton.cdiv(cols, 2048)
        sums = torch.empty(rows, parts, device=x.device)
        out = torch.empty_like(x)
        block_sums[(parts, rows)](x, sums, cols, parts, BLOCK=2048)
        before[(rows,)](sums, parts, BLOCK=16)
        scan[(parts, rows)](x, sums, out, cols, parts, BLOCK=2048)
        return out
