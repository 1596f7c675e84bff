# tier: T1
# root: exact
# expect: uncredited
# base: exact_large_residual
# Works hundreds of times over where there are few elements, and never reads the residual.

@triton.jit
def short_kernel(x_ptr, r_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0.0)
    tl.store(out_ptr + at, x / (1.0 + tl.exp(-x)), at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, r):
        for _ in range(300 if x.numel() < 20000 else 0):
            self.launched(flat_kernel, x, r)
        return self.launched(short_kernel, x, r)
