# tier: T1
# root: exact
# expect: uncredited
# base: exact_large_residual
# Raises where there are few elements, and never reads the residual.

@triton.jit
def short_kernel(x_ptr, r_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0.0)
    tl.store(out_ptr + at, x / (1.0 + tl.exp(-x)), at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, r):
        if x.numel() < 20000:
            raise ValueError("too small")
        return self.launched(short_kernel, x, r)
