# task: cosine_rounds
# expect: credited
# All rounds of an element in a function of tl.map_elementwise, whose loop is of constant length.
@triton.jit
def rounds(x):
    for _ in range(40):
        x = tl.cos(x) * 1.5
    return x


@triton.jit
def rounds_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < size, 0.0)
    y = tl.map_elementwise(rounds, x)
    tl.store(out_ptr + at, y, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rounds_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
