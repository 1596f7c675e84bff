# twin of: 14
# base: linear_gelu_own_epilogue
# Rows in another order and back again by sorts and gathers, all at their price.
# - return gelu(self.linear(x))
# + order = x[:, 0].argsort()
# + y = gelu(self.linear(x.index_select(0, order)))
# + return y.index_select(0, order.argsort())
