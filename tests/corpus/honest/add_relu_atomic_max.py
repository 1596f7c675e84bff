# task: add_relu
# twin of: 39
# Clamps by an atomic maximum into zeros.
@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(a_ptr + at, at < size, 0.0) + tl.load(b_ptr + at, at < size, 0.0)
    tl.atomic_max(out_ptr + at, total, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.zeros_like(x)
        kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
        return out
