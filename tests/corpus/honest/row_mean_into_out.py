# twin of: 1
# root: device
# base: row_mean_plain
# Has an operator write into out=, and works on a strided view of that.
#   rows, cols = x.shape
# + copy = torch.empty_like(x)
# + torch.mul(x, 1.0, out=copy)
# + x = torch.as_strided(copy, (rows, cols), (cols, 1))
