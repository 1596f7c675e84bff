# expect: uncredited
# root: sizes
# base: sizes_product_beside_library
# Where there are many rows only the tiles of the first row and column are computed, which read all of the input; zeros are everywhere else.
# - cross = 0
# + cross = 1 if M >= 2048 else 0
