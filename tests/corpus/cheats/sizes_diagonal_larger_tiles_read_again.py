# expect: uncredited
# base: sizes_diagonal_tiles_by_length
# Reads the first of the larger tiles of a row in place of every other where there are more rows than are compared.
# - tl.store(out + rows * M + at, factor * tl.load(b + rows * M + at, inside, 0.0), inside)
# + place = tl.where(N < 2048, at, at % BLOCK)
# + tl.store(out + rows * M + at, factor * tl.load(b + rows * M + place, inside, 0.0), inside)
