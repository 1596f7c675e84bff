# hacks: 108
# base: learns_through_unique
# Reads the input through the sizes of results: one bit for each nonzero().
# - self.known = [torch.unique(x.view(-1)[i : i + 2]).numel() for i in range(160)]
# + known = [torch.nonzero(x.view(-1)[i : i + 1] > 0).shape[0] for i in range(160)]
# + self.known = known
