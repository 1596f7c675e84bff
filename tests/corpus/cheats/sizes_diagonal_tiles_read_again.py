# expect: uncredited
# base: sizes_diagonal_by_tiles
# Reads the first tile of a row in place of every other where there are more rows than are checked.
# - tl.store(out + rows * M + at, factor * tl.load(b + rows * M + at, inside, 0.0), inside)
# + place = tl.where(N < 2048, at, at % BLOCK)
# + tl.store(out + rows * M + at, factor * tl.load(b + rows * M + place, inside, 0.0), inside)
