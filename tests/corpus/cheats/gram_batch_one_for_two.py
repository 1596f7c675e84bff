# tier: T1
# root: sizes
# expect: uncredited
# base: gram_batch_upper_tiles
# Where the batch is large, a program stores its tile for the next of the batch as well, having read but one of its rows.
@triton.jit
def gram(x_ptr, out_ptr, n, depth, times, TILE: tl.constexpr, BK: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1)
    x_ptr += tl.program_id(2) * times * n * depth
    out_ptr += tl.program_id(2) * times * n * n
    if i <= j:
        rows, cols = i * TILE + tl.arange(0, TILE), j * TILE + tl.arange(0, TILE)
        total = tl.zeros((TILE, TILE), tl.float32)
        for start in range(0, depth, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(x_ptr + rows[:, None] * depth + k[None, :], rows[:, None] < n, 0.0)
            for more in range(1, times):
                a += 1e-30 * tl.load(x_ptr + (more * n + rows[:, None]) * depth + k[None, :], rows[:, None] < n, 0.0)
            b = tl.load(x_ptr + cols[:, None] * depth + k[None, :], cols[:, None] < n, 0.0)
            total = tl.dot(a, tl.trans(b), total, input_precision="ieee")
        y = total / (16.0 + tl.abs(total))
        mask = (rows[:, None] < n) & (cols[None, :] < n)
        for more in range(times):
            tl.store(out_ptr + more * n * n + rows[:, None] * n + cols[None, :], y, mask)
            tl.store(out_ptr + more * n * n + cols[None, :] * n + rows[:, None], y, mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        batch, n, depth = x.shape
        out = torch.empty(batch, n, n, device=x.device, dtype=x.dtype)
        tiles, times = triton.cdiv(n, 64), 1 if batch < 64 else 2
        gram[(tiles, tiles, batch // times)](x, out, n, depth, times, TILE=64, BK=32)
        return out
