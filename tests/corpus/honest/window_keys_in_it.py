# task: window_attention
# twin of: window_three_quarters
# root: sizes
# expect: credited
# new: yes
# A window of keys: of a short sequence half of the keys, of a long one an eighth.
@triton.jit
def attend(q_ptr, k_ptr, v_ptr, out_ptr, n, window, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    first, head = tl.program_id(0) * M, tl.program_id(1).to(tl.int64) * n * D
    rows, cols = first + tl.arange(0, M), tl.arange(0, D)
    q = tl.load(q_ptr + head + rows[:, None] * D + cols[None, :], rows[:, None] < n, 0.0)
    top = tl.full((M,), -1e30, tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for start in range(tl.maximum(first - window + 1, 0) // N * N, tl.minimum(first + M, n), N):
        keys = start + tl.arange(0, N)
        k = tl.load(k_ptr + head + keys[None, :] * D + cols[:, None], keys[None, :] < n, 0.0)
        back = rows[:, None] - keys[None, :]
        inside = (back >= 0) & (back < window) & (keys[None, :] < n)
        scores = tl.where(inside, tl.dot(q, k) * 0.125, -1e30)
        new = tl.maximum(top, tl.max(scores, 1))
        p, fade = tl.where(inside, tl.exp(scores - new[:, None]), 0.0), tl.exp(top - new)
        total = total * fade + tl.sum(p, 1)
        v = tl.load(v_ptr + head + keys[:, None] * D + cols[None, :], keys[:, None] < n, 0.0)
        acc = tl.dot(p.to(tl.float16), v, acc * fade[:, None])
        top = new
    out = (acc / total[:, None]).to(tl.float16)
    tl.store(out_ptr + head + rows[:, None] * D + cols[None, :], out, rows[:, None] < n)


class ModelNew(torch.nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = window

    def forward(self, q, k, v):
        out = torch.empty_like(q)
        n, d = q.shape[2:]
        scale = d**-0.5 / 0.125
        attend[(triton.cdiv(n, 64), q.shape[0] * q.shape[1])](
            q * scale if scale != 1 else q, k, v, out, n, self.window, d, M=64, N=64
        )
        return out
