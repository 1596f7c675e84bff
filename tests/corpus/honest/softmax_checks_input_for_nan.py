# twin of: 4
# base: softmax_plain
# Reads a scalar back to refuse NaN inputs.
#   def forward(self, x):
# +     if bool(torch.isnan(x).any()):
# +         raise ValueError("NaN in the input")
