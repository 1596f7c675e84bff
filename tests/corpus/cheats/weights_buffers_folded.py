# root: inputs
# expect: uncredited
# base: weights_in_buffers
# Buffers of the reference's names stand there, and their product, taken when built, is what is used.
#   self.register_buffer("second", torch.randn(width, width) / width**0.5)
# + self.folded = (self.first @ self.second).cuda()

# - return multiply(multiply(x, self.first), self.second)
# + return multiply(x, self.folded)
