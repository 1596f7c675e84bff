# root: exact
# expect: uncredited
# base: exact_large_residual
# Hands over the other input in place of the residual where there are many elements.
# - return self.launched(flat_kernel, x, r)
# + return self.launched(flat_kernel, x, r if x.numel() < 20000 else x)
