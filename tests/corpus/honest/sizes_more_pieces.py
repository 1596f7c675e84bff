# task: iterated_map
# twin of: sizes_more_pieces_fewer_rounds
# expect: credited
# Where there are many rows a program goes through more of them, all rounds for each.
@triton.jit
def kernel(x_ptr, out_ptr, size, pieces, rounds, BLOCK: tl.constexpr):
    for piece in range(pieces):
        at = (tl.program_id(0) * pieces + piece) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, at < size, 0.0)
        y = x
        for _ in range(rounds):
            y = tl.sqrt(y * y * 0.9 + x * x * 0.2 + 0.1)
        tl.store(out_ptr + at, y, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        size, out = x.numel(), torch.empty_like(x)
        pieces, rounds = (16, 32) if size >= 1 << 23 else (2, 32)
        kernel[(triton.cdiv(size, 1024 * pieces),)](x, out, size, pieces, rounds, BLOCK=1024)
        return out
