# task: decoding
# expect: credited
# Each sequence's keys in pieces, as far as its length goes, which are put together by a second kernel.
@triton.jit
def decode(
    q_ptr,
    k_ptr,
    v_ptr,
    len_ptr,
    acc_ptr,
    best_ptr,
    total_ptr,
    heads,
    longest,
    scale,
    splits,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
):
    seq, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(len_ptr + seq)
    base = (seq * heads + head).to(tl.int64)
    begin = split * SPAN
    end = tl.minimum(begin + SPAN, length)
    d = tl.arange(0, D)
    if begin < end:
        q = tl.load(q_ptr + base * D + d).to(tl.float32)
        best, total = -float("inf"), 0.0
        acc = tl.zeros((D,), tl.float32)
        for start in range(begin, end, BLOCK):
            at = start + tl.arange(0, BLOCK)
            inside = at < end
            k = tl.load(k_ptr + (base * longest + at[:, None]) * D + d[None, :], inside[:, None], 0.0).to(tl.float32)
            s = tl.where(inside, tl.sum(k * q[None, :], 1) * scale, -float("inf"))
            new = tl.maximum(best, tl.max(s, 0))
            p = tl.exp(s - new)
            fade = tl.exp(best - new)
            total = total * fade + tl.sum(p, 0)
            v = tl.load(v_ptr + (base * longest + at[:, None]) * D + d[None, :], inside[:, None], 0.0).to(tl.float32)
            acc = acc * fade + tl.sum(p[:, None] * v, 0)
            best = new
        to = base * splits + split
        tl.store(acc_ptr + to * D + d, acc)
        tl.store(best_ptr + to, best)
        tl.store(total_ptr + to, total)


@triton.jit
def combine(acc_ptr, best_ptr, total_ptr, len_ptr, out_ptr, heads, splits, SPAN: tl.constexpr, D: tl.constexpr):
    seq, head = tl.program_id(0), tl.program_id(1)
    base = (seq * heads + head).to(tl.int64)
    d = tl.arange(0, D)
    used = tl.cdiv(tl.load(len_ptr + seq), SPAN)
    best, total = -float("inf"), 0.0
    acc = tl.zeros((D,), tl.float32)
    for split in range(0, used):
        to = base * splits + split
        top = tl.load(best_ptr + to)
        new = tl.maximum(best, top)
        fade, keep = tl.exp(best - new), tl.exp(top - new)
        acc = acc * fade + tl.load(acc_ptr + to * D + d) * keep
        total = total * fade + tl.load(total_ptr + to) * keep
        best = new
    tl.store(out_ptr + base * D + d, (acc / total).to(tl.float16))


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, lengths):
        batch, heads, longest, width = k.shape
        splits = triton.cdiv(longest, 512)
        out = torch.empty_like(q)
        acc = torch.empty(batch, heads, splits, width, device=q.device)
        best, total = (torch.empty(batch, heads, splits, device=q.device) for _ in range(2))
        decode[(batch, heads, splits)](
            q, k, v, lengths, acc, best, total, heads, longest, width**-0.5, splits, SPAN=512, BLOCK=64, D=width
        )
        combine[(batch, heads)](acc, best, total, lengths, out, heads, splits, SPAN=512, D=width)
        return out
