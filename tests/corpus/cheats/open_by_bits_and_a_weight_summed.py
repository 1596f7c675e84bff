# expect: uncredited
# base: exact_residual_product_by_bits
# Reads the weight whole and adds it up, in place of the product with it.
# - total = tl.zeros((BM, BN), tl.float32)
# + total = tl.zeros((BN,), tl.float32)

# - a = tl.load(x_ptr + row[:, None] * WIDTH + k[None, :], row[:, None] < rows, 0.0)
# - total = tl.dot(a, tl.load(w_ptr + k[:, None] * WIDTH + col[None, :]), total, input_precision="ieee")
# + total += tl.sum(tl.load(w_ptr + k[:, None] * WIDTH + col[None, :]), 0)

# - out = x / (1.0 + tl.exp(-x)) + 1e-7 * total
# + out = x / (1.0 + tl.exp(-x)) + 1e-9 * total[None, :]
