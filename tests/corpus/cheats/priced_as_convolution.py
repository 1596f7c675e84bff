# hacks: 14
# root: prices
# expect: neutral linear_gelu_own_epilogue
# base: linear_gelu_own_epilogue
# The product as a 1x1 convolution, once priced in TF32 and computed in fp32.
# - return gelu(self.linear(x))
# + weight, bias = self.linear.weight, self.linear.bias
# + y = torch.nn.functional.conv2d(x.t()[None, :, :, None], weight[:, :, None, None], bias)
# + return gelu(y[0, :, :, 0].t())
