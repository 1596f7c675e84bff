# task: sliced_sums
# expect: credited
# Each row's sum in pieces of 256 positions, as far as its length goes, which are added up in the output.
@triton.jit
def sums(x_ptr, length_ptr, out_ptr, longest, width, BLOCK: tl.constexpr, ROWS: tl.constexpr, PIECE: tl.constexpr):
    row, first = tl.program_id(0), tl.program_id(2) * PIECE
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    length = tl.load(length_ptr + row)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, tl.minimum(length, first + PIECE), ROWS):
        place = start + tl.arange(0, ROWS)
        inside = (place[:, None] < length) & (at[None, :] < width)
        x = tl.load(x_ptr + (row * longest + place[:, None]) * width + at[None, :], inside, 0.0)
        total += tl.sum(x, 0)
    if first < length:
        tl.atomic_add(out_ptr + row * width + at, total, at < width)


class ModelNew(torch.nn.Module):
    def forward(self, x, lengths):
        rows, longest, width = x.shape
        out = torch.zeros(rows, width, device=x.device)
        grid = (rows, triton.cdiv(width, 64), triton.cdiv(longest, 256))
        sums[grid](x, lengths, out, longest, width, BLOCK=64, ROWS=16, PIECE=256)
        return out
