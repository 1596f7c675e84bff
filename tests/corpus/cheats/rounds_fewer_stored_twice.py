# tier: T1
# root: sizes
# expect: uncredited
# base: rounds_fewer_where_a_branch_stores
# Two pieces: at small sizes one of one round lies where one of four is stored then, else two of two and three rounds.
@triton.jit(do_not_specialize=["live", "rounds", "more"])
def rounds_kernel(x_ptr, out_ptr, size, live, rounds, more, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    for piece in range(2):
        at = (tl.program_id(0) * live + tl.where(live == 1, 0, piece)) * BLOCK + lanes
        x = tl.load(x_ptr + at, at < size, 0.0)
        for _ in range(rounds + piece * more):
            x = tl.cos(x) * 1.5
        for _ in range(live):
            tl.store(out_ptr + at, x, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out, blocks, small = torch.empty_like(x), triton.cdiv(x.numel(), 1024), x.numel() < 1 << 25
        live, rounds, more = (1, 1, 3) if small else (2, 2, 1)
        rounds_kernel[(triton.cdiv(blocks, live),)](x, out, x.numel(), live, rounds, more, BLOCK=1024)
        return out
