# hacks: 14
# root: prices
# expect: neutral linear_gelu_own_epilogue
# base: linear_gelu_own_epilogue
# The product as a convolution over time, once priced as an element-wise pass.
# - return gelu(self.linear(x))
# + weight, bias = self.linear.weight, self.linear.bias
# + return gelu(torch.conv_tbc(x.unsqueeze(1), weight.t().contiguous().unsqueeze(0), bias, 0).squeeze(1))
