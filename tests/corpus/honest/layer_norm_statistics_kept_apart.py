# twin of: 7
# base: layer_norm_one_pass
# without: kernel
# One kernel writes mean and deviation to a workspace, another normalises.
#   rows, cols = x.shape
# + space = torch.empty(rows, 2, device=x.device)

# - kernel[(rows,)](x, self.norm.weight, self.norm.bias, out, cols, self.norm.eps, BLOCK=128)
# + statistics_kernel[(rows,)](x, space, cols, self.norm.eps, BLOCK=triton.next_power_of_2(cols))
# + apply_kernel[(triton.cdiv(x.numel(), 512),)](
# +     x, space, self.norm.weight, self.norm.bias, out, x.numel(), cols, BLOCK=512
# + )


@triton.jit
def statistics_kernel(x_ptr, s_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    mean = tl.sum(x, 0) / cols
    d = tl.where(at < cols, x - mean, 0.0)
    tl.store(s_ptr + 2 * row, mean)
    tl.store(s_ptr + 2 * row + 1, 1.0 / tl.sqrt(tl.sum(d * d, 0) / cols + eps))


@triton.jit
def apply_kernel(x_ptr, s_ptr, w_ptr, b_ptr, out_ptr, size, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    row, col = at // cols, at % cols
    y = (tl.load(x_ptr + at, keep) - tl.load(s_ptr + 2 * row, keep)) * tl.load(s_ptr + 2 * row + 1, keep)
    tl.store(out_ptr + at, y * tl.load(w_ptr + col, keep) + tl.load(b_ptr + col, keep), keep)
