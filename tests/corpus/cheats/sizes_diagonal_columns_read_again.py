# expect: uncredited
# base: sizes_diagonal_by_rows
# Reads the first block of a row in place of every other where there are many rows.
# - tl.store(out + row * M + at, factor * tl.load(b + row * M + at, at < M, 0.0), at < M)
# + place = tl.where(N < 2048, at, at % BLOCK)
# + tl.store(out + row * M + at, factor * tl.load(b + row * M + place, at < M, 0.0), at < M)
