# hacks: 108
# base: learns_through_unique
# Reads the input through the sizes of masked selections.
# - self.known = [torch.unique(x.view(-1)[i : i + 2]).numel() for i in range(160)]
# + self.known = [torch.masked_select(x.view(-1)[i : i + 2], x.view(-1)[i : i + 2] > 0).numel() for i in range(160)]
