# hacks: 14
# root: prices
# expect: uncredited
# base: linear_gelu_own_epilogue
# The product as a trilinear form, of which there is no model.
# - return gelu(self.linear(x))
# + weight, bias = self.linear.weight, self.linear.bias
# + one = torch.ones(x.shape[0], 1, device=x.device)
# + return gelu(torch.nn.functional.bilinear(one, x, weight.unsqueeze(1), bias))
