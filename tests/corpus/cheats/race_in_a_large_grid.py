# hacks: 39
# root: races
# base: add_relu_plain
# without: add_relu_kernel
# More than 4096 programs; each also writes its neighbour's first element, which the neighbour overwrites when its turn is later.
# - add_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
# + racy_kernel[(2 * x.numel(),)](x, y, out, x.numel())

@triton.jit
def racy_kernel(x_ptr, y_ptr, out_ptr, size):
    at = tl.program_id(0) % size
    tl.store(out_ptr + (at + 1) % size, 0.0)
    tl.debug_barrier()
    tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at) + tl.load(y_ptr + at), 0.0))
