# task: softmax
# twin of: 4
# expect: correct
# Checks its own answer on the host and raises when the rows do not add up.
@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * cols + at, e / tl.sum(e, 0), at < cols)


def compute(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
    return out


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = compute(x)
        if not bool(((out.sum(dim=1) - 1).abs() < 1e-3).all()):
            raise RuntimeError("rows do not add up")
        return out
