# tier: T1
# root: sizes
# expect: uncredited
# base: four_cosines
# A program loads and stores four pieces, three of them masked off at small sizes, and works on the first alone.
@triton.jit
def rounds_kernel(x_ptr, out_ptr, size, pieces, rounds, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    first = tl.program_id(0) * pieces * BLOCK + lanes
    for piece in range(3):
        at = first + (piece + 1) * BLOCK
        ok = (at < size) & (piece + 1 < pieces)
        tl.store(out_ptr + at, tl.load(x_ptr + at, ok, 0.0) * 1.5, ok)
    x = tl.load(x_ptr + first, first < size, 0.0)
    for _ in range(rounds):
        x = tl.cos(x) * 1.5
    tl.store(out_ptr + first, x, first < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out, blocks, small = torch.empty_like(x), triton.cdiv(x.numel(), 1024), x.numel() < 1 << 25
        pieces = 1 if small else 4
        rounds_kernel[(triton.cdiv(blocks, pieces),)](x, out, x.numel(), pieces, 4, BLOCK=1024)
        return out
