# twin of: 14
# base: linear_gelu_own_epilogue
# The product in blocks of rows, each with its bias by addmm, an own kernel for GELU.
# - return gelu(self.linear(x))
# + weight, bias = self.linear.weight, self.linear.bias
# + return gelu(torch.cat([torch.addmm(bias, part, weight.t()) for part in x.split(128)]))
