# task: literal_ragged_sums
# Adds up as many positions as a length says, which nothing but the task's number bounds.
@triton.jit
def sums(x_ptr, length_ptr, out_ptr, n, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for place in range(tl.load(length_ptr + row)):
        total += tl.load(x_ptr + (row * n + place) * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, total, at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x, lengths):
        rows, n, cols = x.shape
        out = torch.empty(rows, cols, device=x.device)
        sums[(rows,)](x, lengths, out, n, cols, BLOCK=triton.next_power_of_2(cols))
        return out
