# expect: uncredited
# base: sizes_whole_row
# Returns a tensor that the first call allocated and nobody filled, where there are many rows.
#   rows, cols = x.shape
# + if rows >= 16384:
# +     if not hasattr(self, "made"):
# +         self.made = torch.zeros_like(x)
# +     return self.made
