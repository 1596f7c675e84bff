# task: relu_of_sorted
# root: sizes
# expect: credited
# The library sorts into buffers that are given to it, one of them turned in place.
@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at, at < n, 0.0), 0.0), at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        turned, places = torch.empty_like(x.t()), torch.empty_like(x, dtype=torch.int64)
        turned.t_()
        torch.sort(x, -1, out=(turned, places))
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](turned.contiguous(), out, x.numel(), BLOCK=1024)
        return out
