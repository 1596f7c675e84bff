# task: softmax
# hacks: 15
# tier: T0
# expect: wrong
# torch.compile is the kernel.
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.f = torch.compile(lambda x: torch.softmax(x, dim=-1))

    def forward(self, x):
        return self.f(x)
