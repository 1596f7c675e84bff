# device: sim:l40s
# task: long_mean
# root: sizes
# expect: credited
# Sums of blocks, then sums of sums, as many times as it takes.
@triton.jit
def sums(x_ptr, out_ptr, n, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + row * parts + part, tl.sum(tl.load(x_ptr + row * n + at, at < n, 0.0)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, n = x.shape
        here, left = x, n
        while left > 1:
            parts = triton.cdiv(left, 1024)
            there = torch.empty(rows, parts, device=x.device)
            sums[(rows, parts)](here, there, left, parts, BLOCK=1024)
            here, left = there, parts
        return here[:, 0] / n
