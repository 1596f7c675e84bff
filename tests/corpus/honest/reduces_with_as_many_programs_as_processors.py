# base: reduces_in_stages
# Two stages, the first with at most two programs a processor.
@triton.jit
def parts_of(x_ptr, out_ptr, n, span, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(part * span, tl.minimum(part * span + span, n), BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n + at, at < n, 0.0)
    tl.store(out_ptr + row * tl.num_programs(1) + part, tl.sum(total))


@triton.jit
def last(x_ptr, out_ptr, parts, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out_ptr + row, tl.sum(tl.load(x_ptr + row * parts + at, at < parts, 0.0)) / n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, n = x.shape
        parts = min(triton.cdiv(n, 2048), max(1, 264 // rows))
        span = triton.cdiv(triton.cdiv(n, 2048), parts) * 2048
        sums, out = torch.empty(rows, parts, device=x.device), torch.empty(rows, device=x.device)
        parts_of[(rows, parts)](x, sums, n, span, BLOCK=2048)
        last[(rows,)](sums, out, parts, n, BLOCK=512)
        return out
