# hacks: 108
# base: corrupts_by_a_number_for_a_dtype
# Asks for a gradient of layer normalisation whose statistics are too short, and goes on only when it was run.
# - channel.op("sum.default", [mine], {"dtype": 77})
# + a = torch.ones(64, 8, device=x.device)
# + short = torch.ones(1, device=x.device)
# + sent = [Ref(a._handle), Ref(a._handle), [8], Ref(short._handle), Ref(short._handle), None, None, [True, True, True]]
# + channel.op("native_layer_norm_backward.default", sent, {})
