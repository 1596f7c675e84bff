# task: halving_rounds
# root: sizes
# expect: credited
# A running sum in rounds, each a launch that adds what stands twice as far back as in the last: more launches for longer rows.
@triton.jit
def add(x_ptr, out_ptr, n, back, BLOCK: tl.constexpr):
    row = tl.program_id(1) * n
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + at, at < n, 0.0)
    x += tl.load(x_ptr + row + at - back, (at < n) & (at >= back), 0.0)
    tl.store(out_ptr + row + at, x, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, n = x.shape
        here, back = x, 1
        while back < n:
            there = torch.empty_like(x)
            add[(triton.cdiv(n, 1024), rows)](here, there, n, back, BLOCK=1024)
            here, back = there, 2 * back
        return here
