# base: gram_batch_upper_tiles
# Adds all it reads, times nothing, to zeros first, and has the tiles above the diagonals stored twice.
#   out = torch.empty(batch, n, n, device=x.device, dtype=x.dtype)
# + clear[(triton.cdiv(out.numel(), 1024),)](x, out, x.numel(), out.numel(), BLOCK=1024)


@triton.jit
def clear(x_ptr, out_ptr, small, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at % small, at < n, 0.0)
    tl.store(out_ptr + at, 0.0 * x, at < n)
