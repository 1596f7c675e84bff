# task: cumsum
# twin of: 39
# One launch: each program waits for the sum of the one before it and passes its own on.
@triton.jit
def scan_kernel(x_ptr, sum_ptr, flag_ptr, out_ptr, cols, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(1), tl.program_id(0)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    here = row * parts + part
    before = 0.0
    if part > 0:
        while tl.atomic_add(flag_ptr + here - 1, 0, sem="acquire") == 0:
            pass
        before = tl.load(sum_ptr + here - 1)
    tl.store(sum_ptr + here, before + tl.sum(x, 0))
    tl.debug_barrier()
    tl.atomic_xchg(flag_ptr + here, 1, sem="release")
    tl.store(out_ptr + row * cols + at, before + tl.cumsum(x, 0), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        parts = triton.cdiv(cols, 32)
        out, sums = torch.empty_like(x), torch.empty(rows * parts, device=x.device)
        flags = torch.zeros(rows * parts, dtype=torch.int32, device=x.device)
        scan_kernel[parts, rows](x, sums, flags, out, cols, parts, BLOCK=32)
        return out
