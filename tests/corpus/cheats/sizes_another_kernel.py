# expect: uncredited
# base: sizes_whole_row
# Launches a kernel that only copies where there are many rows.
#   rows, cols = x.shape
# + if rows >= 16384:
# +     out = torch.empty_like(x)
# +     move[(x.numel() // 1024,)](x, out, x.numel(), BLOCK=1024)
# +     return out

@triton.jit
def move(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n), at < n)
