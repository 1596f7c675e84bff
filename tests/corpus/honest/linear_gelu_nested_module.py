# twin of: 25
# base: linear_gelu_in_place_workspace
# The linear layer is a module of its own inside a submodule; its forward is never called.
class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(48, 64))
        self.bias = torch.nn.Parameter(torch.empty(48))
        torch.nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        torch.nn.init.uniform_(self.bias, -0.125, 0.125)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = Inner()

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        m, (n, k) = x.shape[0], weight.shape
        y = torch.empty(m, n, device=x.device)
        matmul_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](
            x, weight.t().contiguous(), y, m, n, k, BM=16, BN=16, BK=32
        )
        out = torch.empty_like(y)
        gelu_kernel[(triton.cdiv(m * n, 256),)](y, bias, out, m * n, n, BLOCK=256)
        return out
