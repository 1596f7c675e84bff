# twin of: 66
# base: softmax_plain
# Wrapped in an autograd function, as training code has it.
class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return out * (grad - (grad * out).sum(-1, keepdim=True))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
