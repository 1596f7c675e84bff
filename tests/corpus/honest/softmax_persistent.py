# twin of: 58
# base: softmax_heuristics
# A few persistent programs loop over the rows.
# - softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
# + softmax_kernel[(7,)](x, out, x.shape[0], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))

@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
        e = tl.exp(x - tl.max(x, 0))
        tl.store(out_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)
