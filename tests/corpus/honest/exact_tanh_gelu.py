# task: exact_tanh_gelu
# Tanh by an exponential.
@triton.jit
def flat_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0.0).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    t = 1.0 - 2.0 / (tl.exp(2.0 * u) + 1.0)
    out = x + 0.0005 * x * (1.0 + t)
    tl.store(out_ptr + at, out, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = out.numel()
        flat_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
