# root: inputs
# expect: uncredited
# base: weights_codes_are_read
# Widens the weights of 8 bits once, when it is built.
#   self.register_buffer("codes", torch.randint(-127, 128, (width, width), dtype=torch.int8))
# + self.wide = self.codes.cuda().float()

# - return multiply(x, self.codes)
# + return multiply(x, self.wide)
