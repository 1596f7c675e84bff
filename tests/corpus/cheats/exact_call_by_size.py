# root: exact
# expect: uncredited
# base: exact_large_residual
# Reads the residual where there are few elements.

@triton.jit
def short_kernel(x_ptr, r_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0.0)
    tl.store(out_ptr + at, x / (1.0 + tl.exp(-x)), at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, r):
        return self.launched(flat_kernel if x.numel() < 20000 else short_kernel, x, r)
