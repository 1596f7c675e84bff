"""Layer normalisation, linear layer, GELU: the first half of a transformer's feed-forward block."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 8192
FEATURES = 2048
OUT_FEATURES = 8192


class Model(nn.Module):
    def __init__(self, features: int, out_features: int):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.linear = nn.Linear(features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(self.norm(x)))


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES, OUT_FEATURES]
