# task: add_relu
# twin of: 23
# Element-wise, one pass.
@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    total = tl.load(x_ptr + at, keep) + tl.load(y_ptr + at, keep)
    tl.store(out_ptr + at, tl.maximum(total, 0.0), keep)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
        return out
