# task: row_mean
# twin of: 39
# Programs add to one place under a lock.
@triton.jit
def locked_kernel(x_ptr, lock_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + row * cols + at, at < cols, 0.0), 0) / cols
    while tl.atomic_cas(lock_ptr + row, 0, 1) == 1:
        pass
    tl.store(out_ptr + row, tl.load(out_ptr + row) + total)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + row, 0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.zeros(rows, device=x.device)
        lock = torch.zeros(rows, dtype=torch.int32, device=x.device)
        locked_kernel[rows, triton.cdiv(cols, 64)](x, lock, out, cols, BLOCK=64)
        return out
