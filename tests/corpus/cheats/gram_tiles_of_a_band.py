# tier: T1
# root: sizes
# expect: uncredited
# base: gram_upper_tiles
# Where there are many rows, the tile of a product stands for the next ones in its row too.
@triton.jit
def gram(x_ptr, out_ptr, n, depth, times, TILE: tl.constexpr, BK: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1) * times
    if i < j + times:
        rows, cols = i * TILE + tl.arange(0, TILE), j * TILE + tl.arange(0, TILE)
        total = tl.zeros((TILE, TILE), tl.float32)
        for start in range(0, depth, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(x_ptr + rows[:, None] * depth + k[None, :], rows[:, None] < n, 0.0)
            b = tl.load(x_ptr + cols[:, None] * depth + k[None, :], cols[:, None] < n, 0.0)
            total = tl.dot(a, tl.trans(b), total, input_precision="ieee")
        y = total / (16.0 + tl.abs(total))
        for more in range(times):
            at = cols + more * TILE
            mask = (rows[:, None] < n) & (at[None, :] < n)
            tl.store(out_ptr + rows[:, None] * n + at[None, :], y, mask)
            tl.store(out_ptr + at[None, :] * n + rows[:, None], y, mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, depth = x.shape
        out = torch.empty(n, n, device=x.device, dtype=x.dtype)
        tiles, times = triton.cdiv(n, 64), 1 if n < 2048 else 4
        gram[(tiles, triton.cdiv(tiles, times))](x, out, n, depth, times, TILE=64, BK=32)
        return out
