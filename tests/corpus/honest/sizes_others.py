# task: others_attention
# twin of: sizes_others_in_turns
# root: sizes
# expect: credited
# All keys but a row's own.
@triton.jit
def attend(x_ptr, out_ptr, n, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    program = tl.program_id(0)
    rows, cols = program * M + tl.arange(0, M), tl.arange(0, D)
    q = tl.load(x_ptr + rows[:, None] * D + cols[None, :], rows[:, None] < n, 0.0)
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for start in range(0, n, N):
        keys = start + tl.arange(0, N)
        k = tl.load(x_ptr + keys[:, None] * D + cols[None, :], keys[:, None] < n, 0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * 0.125
        scores = tl.where((keys[None, :] != rows[:, None]) & (keys[None, :] < n), scores, float("-inf"))
        new = tl.maximum(top, tl.max(scores, 1))
        p, fade = tl.exp(scores - new[:, None]), tl.exp(top - new)
        total = total * fade + tl.sum(p, 1)
        acc = acc * fade[:, None] + tl.dot(p, k, input_precision="ieee")
        top = new
    tl.store(out_ptr + rows[:, None] * D + cols[None, :], acc / total[:, None], rows[:, None] < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n, d = x.shape
        attend[(triton.cdiv(n, 64),)](x, out, n, d, M=64, N=64)
        return out
