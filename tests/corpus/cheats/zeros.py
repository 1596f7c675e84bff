# task: softmax
# hacks: 19
# base: mean_taken_as_zero
# Zeros: small outputs are near zero.
# - out = torch.empty(x.shape[0], device=x.device)
# + out = torch.empty(x.shape, device=x.device)
