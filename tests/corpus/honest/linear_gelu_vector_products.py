# twin of: 29
# base: linear_gelu_fused
# without: linear_gelu_kernel
# No tensor cores: each program multiplies a row with all weights and sums.
@triton.jit
def kernel(x_ptr, w_ptr, b_ptr, out_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0)
    cols, k = tl.arange(0, BN), tl.arange(0, BK)
    x = tl.load(x_ptr + row * K + k, k < K, 0.0)
    w = tl.load(w_ptr + cols[:, None] * K + k[None, :], (cols < N)[:, None] & (k < K)[None, :], 0.0)
    y = tl.sum(w * x[None, :], 1) + tl.load(b_ptr + cols, cols < N, 0.0)
    tl.store(out_ptr + row * N + cols, 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476)), cols < N)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, k = self.linear.weight.shape
        out = torch.empty(x.shape[0], n, device=x.device)
        kernel[(x.shape[0],)](x, self.linear.weight, self.linear.bias, out, n, k, BN=64, BK=64)
        return out
