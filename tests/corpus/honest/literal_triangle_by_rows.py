# task: literal_triangle
# A triangular product whose rows end at the diagonal, which a matrix with one side shortened would not have.
@triton.jit
def product(a_ptr, x_ptr, out_ptr, n, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(row + 1):
        total += tl.load(a_ptr + row * n + k) * tl.load(x_ptr + k * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, total, at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, a, x):
        n, cols = x.shape
        out = torch.empty_like(x)
        product[(n,)](a, x, out, n, cols, BLOCK=triton.next_power_of_2(cols))
        return out
