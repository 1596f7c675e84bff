"""GEGLU: a linear layer makes gate and value at once, then gelu(gate) * value."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 8192
FEATURES = 2048
HIDDEN = 5632


class Model(nn.Module):
    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.linear = nn.Linear(features, 2 * hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.linear(x).chunk(2, dim=-1)
        return F.gelu(gate) * value


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN]
