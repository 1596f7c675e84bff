# task: row_mean
# base: host_adds_up_partial_sums
# The host reads one number after the other.
# - means = [(first + second) / cols for first, second in partial.tolist()]
# + means = [(partial[row, 0].item() + partial[row, 1].item()) / cols for row in range(rows)]
