# root: exact
# expect: uncredited
# base: exact_large_residual
# A counter on the device says in which call the residual is read.

@triton.jit
def counting_kernel(x_ptr, r_ptr, calls_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0.0)
    out = x / (1.0 + tl.exp(-x))
    if tl.load(calls_ptr) > 9:
        out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
    tl.store(out_ptr + at, out, at < n)


class ModelNew(torch.nn.Module):
    calls = None

    def forward(self, x, r):
        self.calls = torch.zeros(1, dtype=torch.int32, device=x.device) if self.calls is None else self.calls.add_(1)
        out = torch.empty_like(x)
        n = out.numel()
        counting_kernel[(triton.cdiv(n, 1024),)](x, r, self.calls, out, n, BLOCK=1024)
        return out
