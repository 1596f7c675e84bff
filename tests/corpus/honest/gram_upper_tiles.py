# task: gram
# root: sizes
# expect: credited
# Computes the tiles on and above the diagonal, and stores each twice.
@triton.jit
def gram(x_ptr, out_ptr, n, depth, TILE: tl.constexpr, BK: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1)
    if i <= j:
        rows, cols = i * TILE + tl.arange(0, TILE), j * TILE + tl.arange(0, TILE)
        total = tl.zeros((TILE, TILE), tl.float32)
        for start in range(0, depth, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(x_ptr + rows[:, None] * depth + k[None, :], rows[:, None] < n, 0.0)
            b = tl.load(x_ptr + cols[:, None] * depth + k[None, :], cols[:, None] < n, 0.0)
            total = tl.dot(a, tl.trans(b), total, input_precision="ieee")
        y = total / (16.0 + tl.abs(total))
        mask = (rows[:, None] < n) & (cols[None, :] < n)
        tl.store(out_ptr + rows[:, None] * n + cols[None, :], y, mask)
        tl.store(out_ptr + cols[None, :] * n + rows[:, None], y, mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, depth = x.shape
        out = torch.empty(n, n, device=x.device, dtype=x.dtype)
        tiles = triton.cdiv(n, 64)
        gram[(tiles, tiles)](x, out, n, depth, TILE=64, BK=32)
        return out
