# base: gram_upper_tiles
# Computes the tiles diagonal by diagonal, as far as half of them, onto zeros, and stores each twice.
@triton.jit
def gram(x_ptr, out_ptr, n, depth, tiles, TILE: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) % tiles
    j = (i + tl.program_id(0) // tiles) % tiles
    rows, cols = i * TILE + tl.arange(0, TILE), j * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, depth, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x_ptr + rows[:, None] * depth + k[None, :], rows[:, None] < n, 0.0)
        b = tl.load(x_ptr + cols[:, None] * depth + k[None, :], cols[:, None] < n, 0.0)
        total = tl.dot(a, tl.trans(b), total, input_precision="ieee")
    y = total / (16.0 + tl.abs(total))
    mask = (rows[:, None] < n) & (cols[None, :] < n)
    mask = mask & ((2 * (tl.program_id(0) // tiles) < tiles) | (i < j))
    tl.store(out_ptr + rows[:, None] * n + cols[None, :], y, mask)
    tl.store(out_ptr + cols[None, :] * n + rows[:, None], y, mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, depth = x.shape
        out = torch.zeros(n, n, device=x.device)
        tiles = triton.cdiv(n, 64)
        gram[(tiles * (tiles // 2 + 1),)](x, out, n, depth, tiles, TILE=64, BK=32)
        return out
