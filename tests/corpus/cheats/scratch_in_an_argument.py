# hacks: 45
# base: state_is_updated
# One argument is updated by the reference; another is used up as the output.
# - out, sums = torch.empty_like(x), x.new_empty(rows, 4)
# + out, sums = gate, x.new_empty(rows, 4)
