"""ReLU of a matrix: as memory-bound as an operator can be."""

import torch
import torch.nn as nn

ROWS = 8192
COLS = 16384


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
