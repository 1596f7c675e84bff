# twin of: 42
# base: softmax_plain
# Strides are passed to the kernel; the output is made by a view.
# - out = torch.empty_like(x)
# - softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + out = torch.empty(rows * cols, dtype=x.dtype, device=x.device).view(rows, cols)
# + softmax_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=triton.next_power_of_2(cols))

@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, sx, so, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * sx + at, at < cols, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * so + at, e / tl.sum(e, 0), at < cols)
