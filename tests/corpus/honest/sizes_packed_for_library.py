# task: tall_product
# twin of: sizes_library_on_fewer_rows
# expect: credited
# A kernel packs an operand for PyTorch's product, another one scales it.
@triton.jit
def pack(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < size, 0.0), at < size)


@triton.jit
def scale(h_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    h = tl.load(h_ptr + (row % rows) * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, h * 2.0, at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        packed = torch.empty_like(a)
        pack[(triton.cdiv(M * K, 1024),)](a, packed, M * K, BLOCK=1024)
        rows = M
        h = torch.mm(packed[:rows], b * 0.5)
        out = torch.empty(M, N, device=a.device)
        scale[(M,)](h, out, rows, N, BLOCK=triton.next_power_of_2(N))
        return out
