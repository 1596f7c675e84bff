# base: sizes_split_k_by_shape
# Splits K into as many parts as fill the processors, each with a sheet of its own, and adds the sheets in a second kernel.
# - tl.atomic_add(c_ptr + rows[:, None] * N + cols[None, :], total, (rows[:, None] < M) & (cols[None, :] < N))
# + c_ptr += tl.program_id(2) * M * N
# + tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, (rows[:, None] < M) & (cols[None, :] < N))

# - split = 4 if M * N < 128 * 128 else 1
# - out.zero_()
# - product[(triton.cdiv(M, 32), triton.cdiv(N, 32), split)](a, b, out, M, N, K, K // split, BM=32, BN=32, BK=32)
# + grid = triton.cdiv(M, 32), triton.cdiv(N, 32)
# + count = 1
# + while count < 8 and grid[0] * grid[1] * count < 512:
# +     count *= 2
# + sheets = torch.empty(count, M, N, device=a.device, dtype=a.dtype)
# + product[(*grid, count)](a, b, sheets, M, N, K, K // count, BM=32, BN=32, BK=32)
# + add[(triton.cdiv(M * N, 1024),)](sheets, out, count, M * N, BLOCK=1024)


@triton.jit(do_not_specialize=["count"])
def add(sheets_ptr, out_ptr, count, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for sheet in range(count):
        total += tl.load(sheets_ptr + sheet * n + at, at < n, 0.0)
    tl.store(out_ptr + at, total, at < n)
