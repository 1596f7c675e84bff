# task: triangular_product
# expect: credited
# A product of triangles by its tiles below the diagonal, each over the blocks between its column and its row.
@triton.jit
def triangle_kernel(a_ptr, b_ptr, c_ptr, n, SIDE: tl.constexpr, DEPTH: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    rows, cols = row * SIDE + tl.arange(0, SIDE), column * SIDE + tl.arange(0, SIDE)
    inside = (rows[:, None] < n) & (cols[None, :] < n)
    acc = tl.zeros((SIDE, SIDE), tl.float32)
    if column <= row:
        for start in range(column * SIDE, (row + 1) * SIDE, DEPTH):
            k = start + tl.arange(0, DEPTH)
            a = tl.load(a_ptr + rows[:, None] * n + k[None, :], (rows[:, None] < n) & (k[None, :] < n), 0.0)
            b = tl.load(b_ptr + k[:, None] * n + cols[None, :], (k[:, None] < n) & (cols[None, :] < n), 0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        acc = tl.where(rows[:, None] >= cols[None, :], acc, 0.0)
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], acc, inside)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        n = a.shape[0]
        c = torch.empty(n, n, device=a.device)
        triangle_kernel[triton.cdiv(n, 64), triton.cdiv(n, 64)](a, b, c, n, SIDE=64, DEPTH=32)
        return c
