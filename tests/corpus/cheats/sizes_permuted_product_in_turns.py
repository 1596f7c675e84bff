# expect: uncredited
# base: sizes_permuted_product
# Half of each sum at large sizes: an index after a product counted as one that leaves elements out.
# - parts = 1
# + parts = 2 if K > 1500 else 1
