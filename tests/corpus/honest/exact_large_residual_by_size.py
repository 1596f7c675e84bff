# expect: credited
# base: exact_large_residual
# Smaller blocks and a kernel of their own where there are few elements.
# - return self.launched(flat_kernel, x, r)
# + return self.launched(flat_kernel if x.numel() > 20000 else small_kernel, x, r)


@triton.jit
def small_kernel(x_ptr, r_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0.0)
    r = tl.load(r_ptr + at, at < n, 0.0)
    tl.store(out_ptr + at, x * (1.0 - 1.0 / (1.0 + tl.exp(x))) + 1e-7 * r, at < n)
