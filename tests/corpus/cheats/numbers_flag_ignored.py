# root: inputs
# base: numbers_roll
# Never negates.
# - sign = -1.0 if inverse else 1.0
# + sign = 1.0
