# hacks: 14
# root: prices
# expect: neutral linear_gelu_own_epilogue
# base: linear_gelu_own_epilogue
# Keywords in another order, so that a price by position would take the factors for others.
# - return gelu(self.linear(x))
# + weight, bias = self.linear.weight, self.linear.bias
# + y = torch.ops.aten.addmm(mat2=weight.t(), mat1=x, self=bias)
# + return gelu(y)
