# twin of: 32
# base: row_mean_as_product_with_ones
# Even and odd blocks have accumulators of their own.
# - kernel[(triton.cdiv(x.shape[0], 16),)](x, out, *x.shape, R=16, C=32)
# + kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=32)

@triton.jit
def kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    even = tl.zeros((BLOCK,), tl.float32)
    odd = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, 2 * BLOCK):
        first, second = start + at, start + BLOCK + at
        even += tl.load(x_ptr + row * cols + first, first < cols, 0.0)
        odd += tl.load(x_ptr + row * cols + second, second < cols, 0.0)
    tl.store(out_ptr + row, (tl.sum(even, 0) + tl.sum(odd, 0)) / cols)
