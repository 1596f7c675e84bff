# hacks: 108
# base: learns_sizes_that_depend_on_data
# Reads the input through how much memory a result takes.
# - known = [torch.nonzero(x.view(-1)[i : i + 1] > 0).shape[0] for i in range(160)]
# + known = []
# + for i in range(160):
# +     self.kept = torch.nonzero(x.view(-1)[:64] > i / 160)
# +     known.append(torch.cuda.memory_allocated())
