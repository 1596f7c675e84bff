# base: sizes_product_then_rows
# expect: uncredited
# Makes the whole product, and adds up an eighth of each row where rows are long.
# - row_sums[(y.shape[0],)](y, out, y.shape[1], y.shape[1], BLOCK=1024)
# + depth = y.shape[1] // 8 if y.shape[1] >= 131072 else y.shape[1]
# + row_sums[(y.shape[0],)](y, out, y.shape[1], depth, BLOCK=1024)
