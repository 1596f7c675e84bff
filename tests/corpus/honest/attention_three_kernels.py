# task: attention
# twin of: 14
# Scores, softmax and weighted sum are kernels of their own, as in a textbook.
@triton.jit
def scores_kernel(q_ptr, k_ptr, s_ptr, length, scale, D: tl.constexpr, B: tl.constexpr):
    head, d = tl.program_id(2), tl.arange(0, D)
    rows, cols = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    q = tl.load(q_ptr + (head * length + rows[:, None]) * D + d[None, :], rows[:, None] < length, 0.0)
    k = tl.load(k_ptr + (head * length + cols[None, :]) * D + d[:, None], cols[None, :] < length, 0.0)
    keep = (rows < length)[:, None] & (cols < length)[None, :]
    s = tl.dot(q, k, input_precision="ieee") * scale
    tl.store(s_ptr + (head * length + rows[:, None]) * length + cols[None, :], s, keep)


@triton.jit
def softmax_kernel(s_ptr, length, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = s_ptr + tl.program_id(0) * length + at
    s = tl.load(place, at < length, -float("inf"))
    e = tl.exp(s - tl.max(s, 0))
    tl.store(place, e / tl.sum(e, 0), at < length)


@triton.jit
def weigh_kernel(s_ptr, v_ptr, out_ptr, length, D: tl.constexpr, B: tl.constexpr):
    head, d = tl.program_id(1), tl.arange(0, D)
    rows = tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.zeros((B, D), tl.float32)
    for start in range(0, length, B):
        cols = start + tl.arange(0, B)
        keep = (rows < length)[:, None] & (cols < length)[None, :]
        p = tl.load(s_ptr + (head * length + rows[:, None]) * length + cols[None, :], keep, 0.0)
        v = tl.load(v_ptr + (head * length + cols[:, None]) * D + d[None, :], (cols < length)[:, None], 0.0)
        acc = tl.dot(p, v, acc, input_precision="ieee")
    tl.store(out_ptr + (head * length + rows[:, None]) * D + d[None, :], acc, (rows < length)[:, None])


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        batch, heads, length, width = q.shape
        scores = torch.empty(batch * heads, length, length, device=q.device)
        out = torch.empty_like(q)
        tiles = triton.cdiv(length, 16)
        scores_kernel[tiles, tiles, batch * heads](q, k, scores, length, width**-0.5, D=width, B=16)
        softmax_kernel[(batch * heads * length,)](scores, length, BLOCK=triton.next_power_of_2(length))
        weigh_kernel[tiles, batch * heads](scores, v, out, length, D=width, B=16)
        return out
