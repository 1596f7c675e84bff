# task: row_mean
# twin of: 39
# Two stages in one launch: who draws the last ticket (release and acquire) adds up, and resets the counter.
@triton.jit
def last_kernel(x_ptr, part_ptr, ticket_ptr, out_ptr, cols, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(part_ptr + row * parts + part, tl.sum(x, 0))
    tl.debug_barrier()
    if tl.atomic_add(ticket_ptr + row, 1, sem="acq_rel") == parts - 1:
        k = tl.arange(0, PARTS)
        tl.store(out_ptr + row, tl.sum(tl.load(part_ptr + row * parts + k, k < parts, 0.0), 0) / cols)
        tl.store(ticket_ptr + row, 0)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ticket = None

    def forward(self, x):
        rows, cols = x.shape
        parts = triton.cdiv(cols, 64)
        if self.ticket is None:
            self.ticket = torch.zeros(rows, dtype=torch.int32, device=x.device)
        out, partial = torch.empty(rows, device=x.device), torch.empty(rows, parts, device=x.device)
        block = triton.next_power_of_2(parts)
        last_kernel[rows, parts](x, partial, self.ticket, out, cols, parts, BLOCK=64, PARTS=block)
        return out
