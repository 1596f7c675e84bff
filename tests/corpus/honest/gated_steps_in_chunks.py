# task: gated_steps
# twin of: gated_steps_chunks_alone
# root: sizes
# expect: credited
# new: yes
# Steps of a chunk at once, by sums of the logarithms of its decays: less accurate where these are large.
@triton.jit
def chunks(q_ptr, k_ptr, v_ptr, g_ptr, out_ptr, steps, D: tl.constexpr, C: tl.constexpr):
    head = tl.program_id(0)
    d, c = tl.arange(0, D), tl.arange(0, C)
    state = tl.zeros((D, D), tl.float32)
    for start in range(0, steps, C):
        inside = start + c < steps
        at = head * steps * D + (start + c)[:, None] * D + d[None, :]
        q = tl.load(q_ptr + at, inside[:, None], 0.0)
        k = tl.load(k_ptr + at, inside[:, None], 0.0)
        v = tl.load(v_ptr + at, inside[:, None], 0.0)
        g = tl.load(g_ptr + head * steps + start + c, inside, 0.0)
        so_far, whole = tl.cumsum(g, 0), tl.sum(g, 0)
        out = tl.dot(q * tl.exp(so_far)[:, None], state, input_precision="ieee")
        near = tl.dot(q, tl.trans(k), input_precision="ieee")
        near = tl.where(c[:, None] >= c[None, :], near * tl.exp(so_far[:, None] - so_far[None, :]), 0.0)
        tl.store(out_ptr + at, tl.dot(near, v, out, input_precision="ieee"), inside[:, None])
        faded = k * tl.exp(whole - so_far)[:, None]
        state = state * tl.exp(whole) + tl.dot(tl.trans(faded), v, input_precision="ieee")


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, g):
        out = torch.empty_like(v)
        chunks[(q.shape[0],)](q, k, v, g, out, q.shape[1], D=q.shape[2], C=32)
        return out
