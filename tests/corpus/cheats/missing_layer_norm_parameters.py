# task: layer_norm
# hacks: 25
# base: unit_softmax_rescales
# without: kernel
# root: catalogue
# The module has no parameters at all.
# - kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
# + layer_norm_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)

@triton.jit
def layer_norm_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < cols
    x = tl.load(x_ptr + row * cols + at, keep, 0.0)
    d = tl.where(keep, x - tl.sum(x, 0) / cols, 0.0)
    tl.store(out_ptr + row * cols + at, d / tl.sqrt(tl.sum(d * d, 0) / cols + 1e-5), keep)
