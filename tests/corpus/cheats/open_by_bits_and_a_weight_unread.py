# expect: uncredited
# base: exact_residual_product
# without: product
# Never multiplies by the weight, and looks at bits so that nothing is known of the values.
@triton.jit
def silu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0.0)
    out = (x / (1.0 + tl.exp(-x))).to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)
    tl.store(out_ptr + at, out, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        silu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
