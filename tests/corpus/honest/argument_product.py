# task: argument_product
# twin of: 45
# root: inputs
# base: matmul_blocked
# Writes a product into its argument, as the reference does; PyTorch makes what is returned.
class ModelNew(torch.nn.Module):
    def forward(self, a, b, c):
        (m, k), n = a.shape, b.shape[1]
        matmul_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](a, b, c, m, n, k, BM=16, BN=16, BK=32)
        return a * 2.0
