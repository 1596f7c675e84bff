# hacks: 14
# root: prices
# expect: uncredited
# base: linear_gelu_own_epilogue
# The bias goes through a matrix exponential, of which there is no model.
# - return gelu(self.linear(x))
# + weight, bias = self.linear.weight, self.linear.bias
# + nilpotent = torch.zeros(2, 2, device=x.device)
# + nilpotent[0, 1] = 1.0
# + one = torch.linalg.matrix_exp(nilpotent)[0, 1]
# + return gelu(torch.addmm(bias * one, x, weight.t()))
