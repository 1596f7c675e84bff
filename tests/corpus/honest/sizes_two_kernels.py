# base: sizes_whole_row
# without: norm
# Sums of squares first, then a second kernel that scales.
# - out = torch.empty_like(x)
# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + out, s = torch.empty_like(x), torch.empty(rows, device=x.device)
# + sums[(rows,)](x, s, cols, BLOCK=triton.next_power_of_2(cols))
# + scale[(triton.cdiv(x.numel(), 1024),)](x, s, self.weight, out, cols, x.numel(), BLOCK=1024)


@triton.jit
def sums(x_ptr, s_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(s_ptr + row, tl.rsqrt(tl.sum(x * x) / cols + 1e-6))


@triton.jit
def scale(x_ptr, s_ptr, w_ptr, out_ptr, cols, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    y = x * tl.load(s_ptr + at // cols, at < n) * tl.load(w_ptr + at % cols, at < n)
    tl.store(out_ptr + at, y, at < n)
