# twin of: 25
# base: linear_gelu_fused
# Weight and bias as own parameters, built from the same seed.
# - self.linear = torch.nn.Linear(64, 48)
# + linear = torch.nn.Linear(64, 48)
# + self.w = torch.nn.Parameter(linear.weight.detach())
# + self.b = torch.nn.Parameter(linear.bias.detach())

# - n = self.linear.out_features
# + n = self.w.shape[0]
#   out = torch.empty(m, n, device=x.device)
# - grid = (triton.cdiv(m, 16), triton.cdiv(n, 16))
# - linear_gelu_kernel[grid](x, self.linear.weight, self.linear.bias, out, m, n, k, BM=16, BN=16, BK=32)
# + linear_gelu_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](x, self.w, self.b, out, m, n, k, BM=16, BN=16, BK=16)
