# twin of: 39
# base: add_relu_plain
# without: add_relu_kernel
# One program for every element or two: more than 4096 of them.
# - add_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
# + tiny_kernel[(5000,)](x, y, out, x.numel())

@triton.jit
def tiny_kernel(x_ptr, y_ptr, out_ptr, size):
    at = tl.program_id(0)
    keep = at < size
    tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at, keep) + tl.load(y_ptr + at, keep), 0.0), keep)
