# twin of: 14
# base: linear_gelu_own_epilogue
# The product as a convolution of width one, at the precision that the task declares.
# - return gelu(self.linear(x))
# + weight, bias = self.linear.weight, self.linear.bias
# + y = torch.nn.functional.conv1d(x.unsqueeze(-1), weight.unsqueeze(-1), bias)
# + return gelu(y.squeeze(-1))
