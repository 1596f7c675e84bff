# hacks: 108
# base: corrupts_by_a_number_for_a_dtype
# Sends a composite operator past the host's own decomposition, for the price of a view.
# - channel.op("sum.default", [mine], {"dtype": 77})
# + turned = x.t()
# + channel.op("contiguous.default", [Ref(turned._handle)], {})
