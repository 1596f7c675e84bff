# task: diagonal_product
# base: sizes_diagonal_by_tiles
# Takes larger tiles where there are more rows than are checked.
# - block = 64
# + block = 64 if N > 128 else 32
