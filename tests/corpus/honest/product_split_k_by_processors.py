# root: sizes
# expect: credited
# base: sizes_product
# Splits K into as many parts as fill the processors, each with a sheet of its own, and adds the sheets in a second kernel.
# - for start in range(0, depth, BK):
# + for start in range(tl.program_id(2) * depth, tl.program_id(2) * depth + depth, BK):

# - tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, (rows[:, None] < M) & (cols[None, :] < N))
# + c_ptr += tl.program_id(2) * M * N
# + tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, (rows[:, None] < M) & (cols[None, :] < N))
@triton.jit(do_not_specialize=["count"])
def add(sheets_ptr, out_ptr, count, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for sheet in range(count):
        total += tl.load(sheets_ptr + sheet * n + at, at < n, 0.0)
    tl.store(out_ptr + at, total, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty(M, N, device=a.device, dtype=a.dtype)
        grid = triton.cdiv(M, 32), triton.cdiv(N, 32)
        count = 1
        while count < 8 and grid[0] * grid[1] * count < 512:
            count *= 2
        sheets = torch.empty(count, M, N, device=a.device, dtype=a.dtype)
        product[(*grid, count)](a, b, sheets, M, N, K, K // count, BM=32, BN=32, BK=32)
        add[(triton.cdiv(M * N, 1024),)](sheets, out, count, M * N, BLOCK=1024)
        return out
