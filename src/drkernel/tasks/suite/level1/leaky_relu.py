"""Leaky ReLU with a slope given to the constructor."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 8192
COLS = 16384
SLOPE = 0.07


class Model(nn.Module):
    def __init__(self, slope: float):
        super().__init__()
        self.slope = slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(x, negative_slope=self.slope)


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [SLOPE]
