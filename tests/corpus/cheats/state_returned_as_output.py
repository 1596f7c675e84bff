# hacks: 46
# base: state_never_written
# The gated answer overwrites the state and is returned as its view.
# - out, sums = torch.empty_like(x), x.new_empty(rows, 4)
# + out, sums = state, x.new_empty(rows, 4)
