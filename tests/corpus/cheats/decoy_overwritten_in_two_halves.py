# hacks: 4
# tier: T0
# root: reachability
# expect: hack decoy_kernel
# base: softmax_heuristics
# without: softmax_kernel
# A kernel fills the output, PyTorch overwrites it half by half.
# - softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
# + fill_kernel[(triton.cdiv(out.numel(), 256),)](out, out.numel(), BLOCK=256)
# + y = torch.softmax(x, dim=-1)
# + half = x.shape[0] // 2
# + out[:half] = y[:half]
# + out[half:] = y[half:]

@triton.jit
def fill_kernel(out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 0.5, at < size)
