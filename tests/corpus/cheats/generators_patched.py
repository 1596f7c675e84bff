# hacks: 90
# tier: T2
# expect: contained softmax_plain
# base: softmax_plain
# Makes every random generator return zeros.
zeros = lambda *size, **kwargs: torch.zeros(*size)
torch.rand = torch.randn = torch.randint = zeros
torch.manual_seed = lambda seed: None
