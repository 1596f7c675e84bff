"""The K largest values of each row in falling order, and where they are."""

import torch
import torch.nn as nn

ROWS = 4096
COLS = 32768
K = 32


class Model(nn.Module):
    def __init__(self, k: int):
        super().__init__()
        self.k = k

    def forward(self, x: torch.Tensor):
        values, indices = torch.topk(x, self.k, dim=-1)
        return values, indices


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [K]
