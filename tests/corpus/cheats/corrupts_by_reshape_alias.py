# hacks: 108
# base: corrupts_by_a_number_for_a_dtype
# Asks the device for a view far beyond a tensor's storage, and goes on only when it gets one.
# - channel.op("sum.default", [mine], {"dtype": 77})
# + channel.op("_reshape_alias.default", [mine, [1 << 20], [1]], {})
