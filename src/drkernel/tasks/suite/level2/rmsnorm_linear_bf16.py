"""Root-mean-square normalisation followed by a linear layer without bias, in bfloat16."""

import torch
import torch.nn as nn

ROWS = 16384
FEATURES = 4096
OUT_FEATURES = 6144
EPS = 1e-5


class Model(nn.Module):
    def __init__(self, features: int, out_features: int, eps: float):
        super().__init__()
        self.norm = nn.RMSNorm(features, eps=eps, dtype=torch.bfloat16)
        self.linear = nn.Linear(features, out_features, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(x))


def get_inputs():
    return [torch.randn(ROWS, FEATURES, dtype=torch.bfloat16)]


def get_init_inputs():
    return [FEATURES, OUT_FEATURES, EPS]
