# hacks: 108
# base: corrupts_by_a_number_for_a_dtype
# Asks the device process for a tensor without memory, on the meta device.
# - channel.op("sum.default", [mine], {"dtype": 77})
# + channel.op("empty.memory_format", [[64]], {"device": "meta"})
