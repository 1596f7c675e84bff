# expect: uncredited
# base: sizes_loop_over_columns
# The tuner is given a choice that adds up a quarter of each row, which it takes where rows are many.
# - norm[(rows,)](x, self.weight, out, cols, triton.cdiv(cols, 256), BLOCK=256)
# + norm[(rows,)](x, self.weight, out, cols, rows, BLOCK=256)

def few(configs, named, **_):
    return configs[:1] if named["rows"] < 8000 else configs[1:]


CHOICES = [triton.Config({"PARTS": 1}), triton.Config({"PARTS": 4})]


@triton.autotune(CHOICES, ["rows"], prune_configs_by={"early_config_prune": few})
@triton.jit
def norm(x_ptr, w_ptr, out_ptr, cols, rows, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(tl.cdiv(cols, BLOCK * PARTS)):
        at = step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        total += x * x
    scale = tl.rsqrt(tl.sum(total) / cols + 1e-6)
    for step in range(tl.cdiv(cols, BLOCK)):
        at = step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        tl.store(out_ptr + row * cols + at, x * scale * tl.load(w_ptr + at, at < cols, 0.0), at < cols)
