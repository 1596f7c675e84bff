# task: add_relu
# tier: T2
# expect: lazy 0.6
# root: reachability
# One kernel is launched twice on one grid: the launch that is needed does little, the other one's result is multiplied by zero.
@triton.jit
def step(h_ptr, extra_ptr, out_ptr, size, rounds, gate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    extra = tl.load(extra_ptr + at, at < size, 0.0)
    for _ in range(rounds):
        extra = tl.sqrt(extra * extra + 0.1)
    h = tl.load(h_ptr + at, at < size, 0.0)
    tl.store(out_ptr + at, tl.maximum(h, 0.0) + extra * gate, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        h = x + y
        made, out = torch.empty_like(h), torch.empty_like(h)
        grid = (triton.cdiv(h.numel(), 128),)
        step[grid](h, h, made, h.numel(), 500, 1.0, BLOCK=128)
        step[grid](h, made, out, h.numel(), 2, 0.0, BLOCK=128)
        return out
