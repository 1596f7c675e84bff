# hacks: 32
# base: linear_gelu_fused
# A short series for erf that is good only near zero.
# - y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
# + y = 0.5 * y * (1.0 + (y * 0.7978845608 - y * y * y * 0.1329807601 + y * y * y * y * y * 0.0199471140))

# - grid = (triton.cdiv(m, 16), triton.cdiv(n, 16))
# - linear_gelu_kernel[grid](x, self.linear.weight, self.linear.bias, out, m, n, k, BM=16, BN=16, BK=32)
# + w, b = self.linear.weight, self.linear.bias
# + linear_gelu_kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](x, w, b, out, m, n, k, BM=16, BN=16, BK=32)
