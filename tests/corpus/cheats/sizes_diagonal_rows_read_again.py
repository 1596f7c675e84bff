# expect: uncredited
# base: sizes_diagonal_by_rows
# Reads the first thousand rows again in place of others.
# - tl.store(out + row * M + at, factor * tl.load(b + row * M + at, at < M, 0.0), at < M)
# + tl.store(out + row * M + at, factor * tl.load(b + (row % 1024) * M + at, at < M, 0.0), at < M)
