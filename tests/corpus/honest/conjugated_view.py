# task: conjugates
# Returns a conjugated view of what the kernel has doubled.
@triton.jit
def k(x, o, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + at, 2 * tl.load(x + at, at < n), at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        v, w = torch.view_as_real(x), torch.view_as_real(o)
        k[(triton.cdiv(v.numel(), 1024),)](v, w, v.numel(), B=1024)
        return o.conj()
