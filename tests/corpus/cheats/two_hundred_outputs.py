# hacks: 107
# tier: T2
# root: resources
# base: number_without_end
# The right answer two hundred times.
# - return out, 10**4000
# + return [out] * 200
