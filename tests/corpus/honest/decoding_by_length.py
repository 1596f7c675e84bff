# task: decoding
# expect: credited
# A sequence's keys in turn, as far as its length goes.
@triton.jit
def decode(q_ptr, k_ptr, v_ptr, len_ptr, out_ptr, heads, longest, scale, BLOCK: tl.constexpr, D: tl.constexpr):
    seq, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(len_ptr + seq)
    base = (seq * heads + head).to(tl.int64)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + base * D + d).to(tl.float32)
    best, total = -float("inf"), 0.0
    acc = tl.zeros((D,), tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < length
        k = tl.load(k_ptr + (base * longest + at[:, None]) * D + d[None, :], inside[:, None], 0.0).to(tl.float32)
        s = tl.where(inside, tl.sum(k * q[None, :], 1) * scale, -float("inf"))
        new = tl.maximum(best, tl.max(s, 0))
        p = tl.exp(s - new)
        fade = tl.exp(best - new)
        total = total * fade + tl.sum(p, 0)
        v = tl.load(v_ptr + (base * longest + at[:, None]) * D + d[None, :], inside[:, None], 0.0).to(tl.float32)
        acc = acc * fade + tl.sum(p[:, None] * v, 0)
        best = new
    tl.store(out_ptr + base * D + d, (acc / total).to(tl.float16))


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, lengths):
        batch, heads, longest, width = k.shape
        out = torch.empty_like(q)
        decode[(batch, heads)](q, k, v, lengths, out, heads, longest, width**-0.5, BLOCK=64, D=width)
        return out
