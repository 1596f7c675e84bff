# task: literal_long_ragged_sums
# base: literal_ragged_sums_by_length
# The same where another number bounds the lengths than the axis is long.
