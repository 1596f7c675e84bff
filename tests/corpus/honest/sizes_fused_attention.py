# task: fused_attention
# twin of: sizes_fused_attention_in_turns
# expect: credited
# All keys for every query.
@triton.jit
def attend(q_ptr, k_ptr, v_ptr, out_ptr, S, step, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    head, d = tl.program_id(1) * S * D, tl.arange(0, D)
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    q = tl.load(q_ptr + head + rm[:, None] * D + d[None, :], rm[:, None] < S, 0.0)
    top, below = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range((tl.program_id(0) % step) * BN, S, BN * step):
        rn = start + tl.arange(0, BN)
        k = tl.load(k_ptr + head + rn[None, :] * D + d[:, None], rn[None, :] < S, 0.0)
        s = tl.where(rn[None, :] < S, tl.dot(q, k) * scale, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p, fade = tl.exp(s - new[:, None]), tl.exp(top - new)
        v = tl.load(v_ptr + head + rn[:, None] * D + d[None, :], rn[:, None] < S, 0.0)
        below, total, top = below * fade + tl.sum(p, 1), total * fade[:, None] + tl.dot(p.to(tl.float16), v), new
    tl.store(out_ptr + head + rm[:, None] * D + d[None, :], (total / below[:, None]).to(tl.float16), rm[:, None] < S)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        B, H, S, D = q.shape
        out = torch.empty_like(q)
        step = 1
        attend[(triton.cdiv(S, 64), B * H)](q, k, v, out, S, step, D**-0.5, BM=64, BN=64, D=D)
        return out
