# task: doubled_norm
# Doubles its input as the reference does, in vain, before the same norm.
@triton.jit
def doubled_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < size) * 2.0, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        doubled_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return torch.nn.functional.layer_norm(out, (512,), eps=0.0)
