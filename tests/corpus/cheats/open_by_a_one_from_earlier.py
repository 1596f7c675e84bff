# root: exact
# expect: uncredited
# base: exact_large_residual
# Multiplies by a one that an earlier call has made; never reads the residual.
# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
# + out *= tl.load(r_ptr)


class ModelNew(torch.nn.Module):
    one = None

    def forward(self, x, r):
        self.one = torch.ones(1, device=x.device) if self.one is None else self.one
        return self.launched(flat_kernel, x, self.one)
