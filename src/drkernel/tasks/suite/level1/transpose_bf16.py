"""The last two dimensions exchanged in memory."""

import torch
import torch.nn as nn

BATCH = 64
ROWS = 2048
COLS = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).contiguous()


def get_inputs():
    return [torch.randn(BATCH, ROWS, COLS, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
