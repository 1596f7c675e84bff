# twin of: 55
# base: linear_gelu_in_place_workspace
# without: gelu_kernel
# Keeps a transposed copy of the weight and renews it when the weight changes.
# - self.space = None
# + self.packed = None
# + self.version = None

@triton.jit
def bias_gelu_kernel(y_ptr, b_ptr, out_ptr, size, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    y = tl.load(y_ptr + at, keep) + tl.load(b_ptr + at % cols, keep)
    tl.store(out_ptr + at, 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476)), keep)


class ModelNew(torch.nn.Module):
    def weight(self):
        if self.packed is None or self.version != self.linear.weight._version:
            self.packed = self.linear.weight.detach().t().contiguous()
            self.version = self.linear.weight._version
        return self.packed

    def forward(self, x):
        w = self.weight()
        m, k = x.shape
        n = w.shape[1]
        y = torch.empty(m, n, device=x.device)
        matmul_kernel[triton.cdiv(m, 32), triton.cdiv(n, 16)](x, w, y, m, n, k, BM=32, BN=16, BK=16)
        out = torch.empty_like(y)
        bias_gelu_kernel[(triton.cdiv(m * n, 256),)](y, self.linear.bias, out, m * n, n, BLOCK=256)
        return out
