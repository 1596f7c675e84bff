"""Softmax along the rows of a bfloat16 matrix."""

import torch
import torch.nn as nn

ROWS = 8192
COLS = 32768


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLS, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
