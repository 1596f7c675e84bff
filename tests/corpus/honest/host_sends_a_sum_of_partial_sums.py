# task: row_mean
# base: host_adds_up_partial_sums
# PyTorch adds up what a kernel wrote, and the host divides it.
# - means = [(first + second) / cols for first, second in partial.tolist()]
# + means = [total / cols for total in partial.sum(dim=1).tolist()]
