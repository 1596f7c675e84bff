# twin of: 14
# base: linear_gelu_own_epilogue
# Views of weights and rows, a product into given memory, an own kernel for GELU.
# - return gelu(self.linear(x))
# + y = torch.empty(x.shape[0], self.linear.out_features, device=x.device)
# + halves = x.view(2, x.shape[0] // 2, x.shape[1]).unbind(0)
# + for half, target in zip(halves, y.chunk(2)):
# +     torch.mm(half, self.linear.weight.t(), out=target)
# + return gelu(y.add_(self.linear.bias.expand_as(y)))
