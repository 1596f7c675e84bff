# twin of: 1
# root: uncounted_data
# base: row_mean_plain
# Asks once for a size that depends on data and once for a flag: a few bytes.
#   rows, cols = x.shape
# + assert torch.nonzero(x[:, 0] == x[:, 0]).shape[0] == rows and torch.equal(x, x)
