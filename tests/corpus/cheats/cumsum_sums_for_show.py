# expect: lazy 0.8
# base: cumsum_three_kernels
# Sums of blocks are made, and taken times zero: the scan carries its own.
# - tl.store(sums_ptr + tl.program_id(0) * parts + at, tl.cumsum(sums, 0) - sums, at < parts)
# + tl.store(sums_ptr + tl.program_id(0) * parts + at, sums * 0.0, at < parts)

# - scan[(parts, rows)](x, sums, out, cols, parts, BLOCK=2048)
# + scan[(1, rows)](x, sums, out, cols, parts, BLOCK=2048)

@triton.jit
def scan(x_ptr, sums_ptr, out_ptr, cols, parts, BLOCK: tl.constexpr):
    row, carry = tl.program_id(1), 0.0
    for part in range(parts):
        at = part * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        carry += tl.load(sums_ptr + row * parts + part)
        tl.store(out_ptr + row * cols + at, tl.cumsum(x, 0) + carry, at < cols)
        carry += tl.sum(x, 0)
