# twin of: 52
# base: softmax_heuristics
# Block pointers.
# - softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
# + softmax_kernel[x.shape[0], 1](x, out, x.shape[0], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))

@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    src = tl.make_block_ptr(x_ptr, (rows, cols), (cols, 1), (row, 0), (1, BLOCK), (1, 0))
    dst = tl.make_block_ptr(out_ptr, (rows, cols), (cols, 1), (row, 0), (1, BLOCK), (1, 0))
    x = tl.load(src, boundary_check=(0, 1), padding_option="zero")
    x = tl.where(tl.arange(0, BLOCK)[None, :] < cols, x, -float("inf"))
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(dst, e / tl.sum(e, 1)[:, None], boundary_check=(0, 1))
