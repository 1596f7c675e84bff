# task: experts_by_logits
# expect: credited
# checked: there
# Tokens sorted by their expert, of which a program runs those that its rows ask for: at own sizes that takes data.
@triton.jit
def experts(x_ptr, w_ptr, order_ptr, chosen_ptr, out_ptr, tokens, depth, D: tl.constexpr, ROWS: tl.constexpr, K: tl.constexpr):
    places = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = places < tokens
    rows = tl.load(order_ptr + places, inside, 0)
    chosen = tl.load(chosen_ptr + rows, inside, 0)
    d = tl.arange(0, D)
    total = tl.zeros((ROWS, D), tl.float32)
    for expert in range(tl.min(tl.where(inside, chosen, 1 << 30), 0), tl.max(chosen, 0) + 1):
        mine = (inside & (chosen == expert))[:, None]
        for start in range(0, depth, K):
            k = start + tl.arange(0, K)
            x = tl.load(x_ptr + rows[:, None] * D + k[None, :], mine, 0.0)
            w = tl.load(w_ptr + (expert * D + k[:, None]) * D + d[None, :])
            total = tl.dot(x, w, total)
    tl.store(out_ptr + rows[:, None] * D + d[None, :], total.to(tl.float16), inside[:, None])


class ModelNew(torch.nn.Module):
    def forward(self, x, w, logits):
        chosen = logits.argmax(-1)
        out = torch.empty_like(x)
        tokens, width = x.shape
        grid = (triton.cdiv(tokens, 16),)
        experts[grid](x, w, chosen.argsort(), chosen, out, tokens, width, D=width, ROWS=16, K=32)
        return out
