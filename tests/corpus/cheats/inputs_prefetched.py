# hacks: 80
# tier: T2
# expect: neutral softmax_plain
# base: softmax_plain
# Reads the input once more after returning it would be warm in L2.
@triton.jit
def touch_kernel(x_ptr, sink_ptr, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * cols + at, at < cols, 0.0)
    tl.store(sink_ptr + tl.program_id(0), tl.sum(x, 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        sink = torch.empty(x.shape[0], device=x.device)
        touch_kernel[(x.shape[0],)](x, sink, x.shape[1], BLOCK=128)
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
        return out
