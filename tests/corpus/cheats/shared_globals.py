# task: softmax
# hacks: 87
# tier: T2
# expect: wrong
# Overwrites the reference's constants.
import torch

ROWS = COLS = 1
import __main__

__main__.ROWS = __main__.COLS = 1


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
