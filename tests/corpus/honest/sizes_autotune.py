# base: sizes_whole_row
# A tuner chooses rows and warps of a program.
# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + norm[lambda meta: (triton.cdiv(rows, meta["ROWS"]),)](
# +     x, self.weight, out, rows, cols, BLOCK=triton.next_power_of_2(cols)
# + )

@triton.autotune([triton.Config({"ROWS": n}, num_warps=w) for n, w in ((1, 4), (2, 4), (4, 8))], key=["rows"])
@triton.jit
def norm(x_ptr, w_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[None, :]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    keep = (row < rows) & (at < cols)
    x = tl.load(x_ptr + row * cols + at, keep, 0.0)
    y = x * tl.rsqrt(tl.sum(x * x, 1, keep_dims=True) / cols + 1e-6)
    tl.store(out_ptr + row * cols + at, y * tl.load(w_ptr + at, at < cols, 0.0), keep)
