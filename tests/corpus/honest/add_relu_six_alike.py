# task: add_relu
# twin of: decoy_of_the_same_kernel
# One kernel is launched six times on one grid, for a piece each.
@triton.jit
def part(x_ptr, y_ptr, out_ptr, first, size, BLOCK: tl.constexpr):
    at = first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at, at < size, 0.0), tl.load(y_ptr + at, at < size, 0.0)
    tl.store(out_ptr + at, tl.maximum(x + y, 0.0), at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out, size = torch.empty_like(x), x.numel()
        piece = triton.cdiv(size, 6)
        for first in range(0, size, piece):
            part[(triton.cdiv(piece, 64),)](x, y, out, first, min(size, first + piece), BLOCK=64)
        return out
