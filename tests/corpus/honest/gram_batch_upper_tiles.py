# task: gram_batch
# base: gram_upper_tiles
# The same for each of a batch.
# - def gram(x_ptr, out_ptr, n, depth, TILE: tl.constexpr, BK: tl.constexpr):
# -     i, j = tl.program_id(0), tl.program_id(1)
# + def gram(x_ptr, out_ptr, n, depth, TILE: tl.constexpr, BK: tl.constexpr):
# +     i, j = tl.program_id(0), tl.program_id(1)
# +     x_ptr += tl.program_id(2) * n * depth
# +     out_ptr += tl.program_id(2) * n * n


class ModelNew(torch.nn.Module):
    def forward(self, x):
        batch, n, depth = x.shape
        out = torch.empty(batch, n, n, device=x.device, dtype=x.dtype)
        tiles = triton.cdiv(n, 64)
        gram[(tiles, tiles, batch)](x, out, n, depth, TILE=64, BK=32)
        return out
