# expect: uncredited
# base: gram_upper_tiles
# Where there are many rows, the tile of a product stands for the next ones in its row too.
# - def gram(x_ptr, out_ptr, n, depth, TILE: tl.constexpr, BK: tl.constexpr):
# -     i, j = tl.program_id(0), tl.program_id(1)
# -     if i <= j:
# + def gram(x_ptr, out_ptr, n, depth, times, TILE: tl.constexpr, BK: tl.constexpr):
# +     i, j = tl.program_id(0), tl.program_id(1) * times
# +     if i < j + times:

# - mask = (rows[:, None] < n) & (cols[None, :] < n)
# - tl.store(out_ptr + rows[:, None] * n + cols[None, :], y, mask)
# - tl.store(out_ptr + cols[None, :] * n + rows[:, None], y, mask)
# + for more in range(times):
# +     at = cols + more * TILE
# +     mask = (rows[:, None] < n) & (at[None, :] < n)
# +     tl.store(out_ptr + rows[:, None] * n + at[None, :], y, mask)
# +     tl.store(out_ptr + at[None, :] * n + rows[:, None], y, mask)

# - tiles = triton.cdiv(n, 64)
# - gram[(tiles, tiles)](x, out, n, depth, TILE=64, BK=32)
# + tiles, times = triton.cdiv(n, 64), 1 if n < 2048 else 4
# + gram[(tiles, triton.cdiv(tiles, times))](x, out, n, depth, times, TILE=64, BK=32)
