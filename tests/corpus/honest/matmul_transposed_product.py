# twin of: 42
# base: matmul_blocked
# Computes the transpose of the product and returns its transposed view.
class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        left, right = b.t().contiguous(), a.t().contiguous()
        c = torch.empty(n, m, device=a.device)
        matmul_kernel[triton.cdiv(n, 16), triton.cdiv(m, 16)](left, right, c, n, m, k, BM=16, BN=16, BK=32)
        return c.t()
