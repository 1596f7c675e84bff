# hacks: 108
# base: corrupts_by_a_number_for_a_dtype
# Asks for the gradient of pooling with an index far outside, and goes on only when it was taken.
# - channel.op("sum.default", [mine], {"dtype": 77})
# + grad = torch.ones(1, 1, 1, 1, device=x.device)
# + plane = torch.zeros(1, 1, 2, 2, device=x.device)
# + index = torch.full((1, 1, 1, 1), 1 << 16, device=x.device, dtype=torch.int64)
# + sent = [Ref(grad._handle), Ref(plane._handle), [2, 2], [2, 2], [0, 0], [1, 1], False, Ref(index._handle)]
# + channel.op("max_pool2d_with_indices_backward.default", sent, {})
