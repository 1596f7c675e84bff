# task: exact_step
# A step of gradient descent with weight decay.
@triton.jit
def flat_kernel(p_ptr, g_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    p = tl.load(p_ptr + at, at < n, 0.0).to(tl.float32)
    g = tl.load(g_ptr + at, at < n, 0.0).to(tl.float32)
    out = p - 1e-7 * (g + 0.1 * p)
    tl.store(out_ptr + at, out, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, p, g):
        out = torch.empty_like(p)
        n = out.numel()
        flat_kernel[(triton.cdiv(n, 1024),)](p, g, out, n, BLOCK=1024)
        return out
