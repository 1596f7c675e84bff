# base: sizes_stored_straight
# Columns are loaded and rows stored; at large sizes rows are loaded.
# - row, at = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
# - x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
# - tl.store(out_ptr + row.to(tl.int64) * sr + at * sc, tl.maximum(x, 0.0), at < cols)
# + col, at = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
# + x = tl.load(x_ptr + at.to(tl.int64) * sr + col * sc, at < rows, 0.0)
# + tl.store(out_ptr + col * rows + at, tl.maximum(x, 0.0), at < rows)

# - sr, sc = (1, rows) if x.numel() < 1 << 24 else (cols, 1)
# - turn[(triton.cdiv(cols, 256), rows)](x, out, rows, cols, sr, sc, BLOCK=256)
# + sr, sc = (cols, 1) if x.numel() < 1 << 24 else (1, rows)
# + turn[(triton.cdiv(rows, 256), cols)](x, out, rows, cols, sr, sc, BLOCK=256)
