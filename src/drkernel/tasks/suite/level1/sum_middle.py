"""Sum over the middle dimension."""

import torch
import torch.nn as nn

BATCH = 128
REDUCED = 4096
FEATURES = 1024


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(x, dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(BATCH, REDUCED, FEATURES)]


def get_init_inputs():
    return []
