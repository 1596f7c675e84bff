# task: small_iteration
# Two hundred dependent steps in one program.
from triton.language.extra import libdevice


@triton.jit
def steps(x_ptr, a_ptr, out_ptr, size, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = (at[:, None] < size) & (at[None, :] < size)
    a = tl.load(a_ptr + at[:, None] * size + at[None, :], inside, 0.0)
    x = tl.load(x_ptr + at, at < size, 0.0)
    for _ in range(count):
        y = tl.sum(x[:, None] * a, 0)
        x = libdevice.tanh(y)
        x = tl.sum(tl.where(at[:, None] == at[None, :], x[None, :], 0.0), 1)
    tl.store(out_ptr + at, x, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x, a):
        out = torch.empty_like(x)
        steps[(1,)](x, a, out, a.shape[0], 200, BLOCK=16, num_warps=1)
        return out
