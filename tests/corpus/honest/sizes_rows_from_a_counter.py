# twin of: sizes_more_pieces_fewer_rounds
# base: sizes_whole_row
# without: norm
# root: catalogue
# Programs take the next row from a counter of zeros, which does not grow with the input.
@triton.jit
def kernel(x_ptr, w_ptr, out_ptr, next_ptr, rows, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + at, at < cols, 0.0)
    row = tl.atomic_add(next_ptr, 1)
    while row < rows:
        x = tl.load(x_ptr + row.to(tl.int64) * cols + at, at < cols, 0.0)
        scale = tl.rsqrt(tl.sum(x * x) / cols + 1e-6)
        tl.store(out_ptr + row.to(tl.int64) * cols + at, x * scale * w, at < cols)
        row = tl.atomic_add(next_ptr, 1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        (rows, cols), out = x.shape, torch.empty_like(x)
        following = torch.zeros(1, dtype=torch.int32, device=x.device)
        kernel[(min(rows, 264),)](x, self.weight, out, following, rows, cols, BLOCK=triton.next_power_of_2(cols))
        return out
