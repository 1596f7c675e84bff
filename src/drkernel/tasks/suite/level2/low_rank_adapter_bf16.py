"""A frozen linear layer plus its low-rank adapter, in bfloat16."""

import torch
import torch.nn as nn

ROWS = 8192
FEATURES = 4096
OUT_FEATURES = 4096
RANK = 16
ALPHA = 2.0


class Model(nn.Module):
    def __init__(self, features: int, out_features: int, rank: int, alpha: float):
        super().__init__()
        self.base = nn.Linear(features, out_features, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(features, rank, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(rank, out_features, bias=False, dtype=torch.bfloat16)
        self.alpha = alpha

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.alpha * self.up(self.down(x))


def get_inputs():
    return [torch.randn(ROWS, FEATURES, dtype=torch.bfloat16)]


def get_init_inputs():
    return [FEATURES, OUT_FEATURES, RANK, ALPHA]
