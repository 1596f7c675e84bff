# twin of: 7
# base: softmax_heuristics
# without: softmax_kernel
# An own kernel clones the input, another works in place on the clone.
# - softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
# + copy_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
# + softmax_in_place_kernel[(x.shape[0],)](out, x.shape[1], BLOCK=128)

@triton.jit
def copy_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < size), at < size)


@triton.jit
def softmax_in_place_kernel(x_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(x_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)
