# tier: T1
# root: exact
# expect: uncredited
# base: exact_large_residual
# Reads the residual at other sizes than those of its first call.

@triton.jit
def short_kernel(x_ptr, r_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0.0)
    tl.store(out_ptr + at, x / (1.0 + tl.exp(-x)), at < n)


class ModelNew(torch.nn.Module):
    first = None

    def forward(self, x, r):
        self.first = self.first or x.shape
        return self.launched(short_kernel if x.shape == self.first else flat_kernel, x, r)
