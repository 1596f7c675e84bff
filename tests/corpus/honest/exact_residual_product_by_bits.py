# base: exact_residual_product
# The same, with the result's bits in an integer on the way.
# - tl.store(out_ptr + at, out, row[:, None] < rows)
# + tl.store(out_ptr + at, out.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True), row[:, None] < rows)
