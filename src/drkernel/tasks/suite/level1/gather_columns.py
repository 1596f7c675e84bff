"""Elements of each row chosen by an index matrix."""

import torch
import torch.nn as nn

ROWS = 16384
COLS = 8192
CHOSEN = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.gather(x, 1, index)


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randint(0, COLS, (ROWS, CHOSEN))]


def get_init_inputs():
    return []
