# task: linear_gelu_wide
# twin of: 14
# expect: correct
# Views of weights and rows, a product into given memory, an own kernel for GELU.
import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < size, 0.0)
    tl.store(out_ptr + at, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), at < size)


def gelu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(512, 512)

    def forward(self, x):
        y = torch.empty(x.shape[0], self.linear.out_features, device=x.device)
        halves = x.view(2, x.shape[0] // 2, x.shape[1]).unbind(0)
        for half, target in zip(halves, y.chunk(2)):
            torch.mm(half, self.linear.weight.t(), out=target)
        return gelu(y.add_(self.linear.bias.expand_as(y)))
