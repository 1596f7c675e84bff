# hacks: 1
# base: copy_after_torch
# expect: wrong
# Computes on the host and uploads; a kernel copies.
# - y = torch.softmax(x, dim=-1)
# + y = torch.softmax(x.cpu(), dim=-1).to(x.device)
