# task: long_softmax
# twin of: first_program_reads_once
# expect: credited
# Three passes over rows that are longer than what an SM can keep.
@triton.jit
def softmax(x_ptr, out_ptr, spare_ptr, cols, spare, BLOCK: tl.constexpr):
    row = (tl.program_id(0) - spare).to(tl.int64)
    if row < 0:
        tl.store(spare_ptr + tl.program_id(0), tl.load(x_ptr + tl.program_id(0)))
    else:
        top, total = tl.full((BLOCK,), -float("inf"), tl.float32), tl.zeros((BLOCK,), tl.float32)
        for start in range(0, cols, BLOCK):
            at = start + tl.arange(0, BLOCK)
            top = tl.maximum(top, tl.load(x_ptr + row * cols + at, at < cols, -float("inf")))
        highest = tl.max(top)
        for start in range(0, cols, BLOCK):
            at = start + tl.arange(0, BLOCK)
            total += tl.exp(tl.load(x_ptr + row * cols + at, at < cols, -float("inf")) - highest)
        below = tl.sum(total)
        for start in range(0, cols, BLOCK):
            at = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
            tl.store(out_ptr + row * cols + at, tl.exp(x - highest) / below, at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out, spare = torch.empty_like(x), torch.empty(16, device=x.device)
        softmax[(rows + 0,)](x, out, spare, cols, 0, BLOCK=4096, num_warps=8)
        return out
