# expect: credited
# base: exact_large_residual
# Counts its calls, and makes its scale in the first one.
# - def flat_kernel(x_ptr, r_ptr, out_ptr, n, BLOCK: tl.constexpr):
# + def flat_kernel(x_ptr, r_ptr, scale_ptr, out_ptr, n, BLOCK: tl.constexpr):

# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
# + out += tl.load(scale_ptr) * tl.load(r_ptr + at, at < n, 0.0)

# - kernel[(triton.cdiv(n, 1024),)](x, r, out, n, BLOCK=1024)
# + kernel[(triton.cdiv(n, 1024),)](x, r, self.scale, out, n, BLOCK=1024)


class ModelNew(torch.nn.Module):
    calls = 0
    scale = None

    def forward(self, x, r):
        self.calls += 1
        self.scale = torch.full((1,), 1e-7, device=x.device) if self.scale is None else self.scale
        return self.launched(flat_kernel, x, r)
