"""Linear layer, sigmoid, then a weighted sum of each row."""

import torch
import torch.nn as nn

ROWS = 16384
FEATURES = 2048
HIDDEN = 4096


class Model(nn.Module):
    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.linear = nn.Linear(features, hidden)
        self.weight = nn.Parameter(torch.randn(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.sigmoid(self.linear(x)) * self.weight).sum(dim=-1)


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN]
