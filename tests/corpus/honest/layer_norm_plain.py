# task: layer_norm
# twin of: 22, 25
# Weights are read in every forward.
@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < cols
    x = tl.load(x_ptr + row * cols + at, keep, 0.0)
    mean = tl.sum(x, 0) / cols
    centred = tl.where(keep, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / cols + eps)
    w = tl.load(w_ptr + at, keep, 0.0)
    b = tl.load(b_ptr + at, keep, 0.0)
    tl.store(out_ptr + row * cols + at, centred * scale * w + b, keep)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(96)

    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        norm = self.norm
        layer_norm_kernel[(rows,)](x, norm.weight, norm.bias, out, cols, norm.eps, BLOCK=triton.next_power_of_2(cols))
        return out
