# task: wide_remainders
# root: prices
# expect: credited
# All rounds of 64-bit remainders in one kernel.
@triton.jit
def rounds(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at, at < n, 1), tl.load(y_ptr + at, at < n, 1)
    for _ in range(48):
        x = x * 3 % y
    tl.store(out_ptr + at, x, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        rounds[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
        return out
