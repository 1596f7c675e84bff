# task: power_iteration
# root: sizes
# expect: credited
# Eight products of matrices with vectors, a launch for each.
@triton.jit
def product(a_ptr, v_ptr, out_ptr, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    which = tl.program_id(0)
    rows, at = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    v = tl.load(v_ptr + which * n + at, at < n, 0.0)
    a = tl.load(a_ptr + (which * n + rows[:, None]) * n + at[None, :], (rows[:, None] < n) & (at[None, :] < n), 0.0)
    y = tl.sum(a * v[None, :], 1)
    tl.store(out_ptr + which * n + rows, y / (1.0 + tl.abs(y)), rows < n)


class ModelNew(torch.nn.Module):
    def forward(self, a, v):
        batch, n = v.shape
        for _ in range(8):
            out = torch.empty_like(v)
            product[(batch, triton.cdiv(n, 16))](a, v, out, n, ROWS=16, BLOCK=triton.next_power_of_2(n))
            v = out
        return out
