# twin of: 28
# base: batch_norm_training
# The reference computes something else in eval mode, which nobody asks for here: that is left to PyTorch.
#   def forward(self, x):
# +     if not self.training:
# +         return self.norm(x)
