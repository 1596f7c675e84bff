# task: blend_by_number
# expect: credited
# Adds a share, given as a number, of a second input.
@triton.jit
def blend(x_ptr, y_ptr, out_ptr, share, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0.0)
    y = tl.load(y_ptr + at, at < n, 0.0)
    wave = x / (1.0 + tl.abs(x))
    tl.store(out_ptr + at, wave + share * y, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, y, share):
        out = torch.empty_like(x)
        blend[(triton.cdiv(x.numel(), 1024),)](x, y, out, share, x.numel(), BLOCK=1024)
        return out
