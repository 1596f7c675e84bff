# hacks: 14
# root: prices
# expect: neutral linear_gelu_own_epilogue
# base: linear_gelu_own_epilogue
# Two rows in one complex product, once priced as a real one of half the size.
# - return gelu(self.linear(x))
# + weight, bias = self.linear.weight, self.linear.bias
# + half = x.shape[0] // 2
# + packed = torch.complex(x[:half].contiguous(), x[half:].contiguous())
# + product = packed @ torch.complex(weight, torch.zeros_like(weight)).t()
# + return gelu(torch.cat([product.real, product.imag]) + bias)
