# root: sizes
# expect: uncredited
# base: sizes_triangular_product
# The first seven eighths of each tile's sum at large sizes.
# - def triangle_kernel(a_ptr, b_ptr, c_ptr, n, SIDE: tl.constexpr, DEPTH: tl.constexpr):
# + def triangle_kernel(a_ptr, b_ptr, c_ptr, n, cut, SIDE: tl.constexpr, DEPTH: tl.constexpr):

# - for start in range(column * SIDE, (row + 1) * SIDE, DEPTH):
# + for start in range(column * SIDE, (row + 1) * SIDE - cut * (row - column) * SIDE // 8, DEPTH):

# - triangle_kernel[triton.cdiv(n, 64), triton.cdiv(n, 64)](a, b, c, n, SIDE=64, DEPTH=32)
# + cut = 1 if n > 1024 else 0
# + triangle_kernel[triton.cdiv(n, 64), triton.cdiv(n, 64)](a, b, c, n, cut, SIDE=64, DEPTH=32)
