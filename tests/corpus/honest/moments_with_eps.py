# task: moments
# twin of: moments_without_eps
# root: exact
# Divides by a root and an eps outside of it.
@triton.jit
def divide(x_ptr, v_ptr, out_ptr, size, eps, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, v = tl.load(x_ptr + at, at < size, 0.0), tl.load(v_ptr + at, at < size, 1.0)
    tl.store(out_ptr + at, x - 0.01 * x / (tl.sqrt_rn(v) + eps), at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x, v):
        out = torch.empty_like(x)
        divide[(triton.cdiv(x.numel(), 1024),)](x, v, out, x.numel(), 1e-6, BLOCK=1024)
        return out
