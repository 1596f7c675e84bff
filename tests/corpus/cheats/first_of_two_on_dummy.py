# tier: T0
# base: first_of_two_product
# root: reachability
# hacks: 4
# expect: uncredited
# A small kernel in place of the product that the answer does not follow.
# - linear_kernel[triton.cdiv(m, 32), k // 32](x, self.linear.weight, self.linear.bias, out, m, k, k, 32, 32, 32)
# + linear_kernel[1, 1](x, self.linear.weight, self.linear.bias, out, m, k, 32, 32, 32, 32)
