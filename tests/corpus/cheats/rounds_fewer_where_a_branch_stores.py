# tier: T1
# root: sizes
# new: yes
# expect: uncredited
# base: four_cosines
# Eight pieces: at small sizes one of four rounds is stored and seven of one round are not, then eight of two.
@triton.jit(do_not_specialize=["live", "rounds"])
def rounds_kernel(x_ptr, out_ptr, size, live, rounds, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    for piece in range(8):
        at = (tl.program_id(0) * live + piece) * BLOCK + lanes
        x = tl.load(x_ptr + at, at < size, 0.0)
        for _ in range(tl.where(piece < live, rounds, 1)):
            x = tl.cos(x) * 1.5
        if piece < live:
            tl.store(out_ptr + at, x, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out, blocks, small = torch.empty_like(x), triton.cdiv(x.numel(), 1024), x.numel() < 1 << 25
        live, rounds = (1, 4) if small else (8, 2)
        rounds_kernel[(triton.cdiv(blocks, live),)](x, out, x.numel(), live, rounds, BLOCK=1024)
        return out
