"""Squeeze-and-excitation: channels scaled by gates computed from their means."""

import torch
import torch.nn as nn

BATCH = 64
CHANNELS = 512
REDUCED = 32
SIZE = 56


class Model(nn.Module):
    def __init__(self, channels: int, reduced: int):
        super().__init__()
        self.down = nn.Linear(channels, reduced)
        self.up = nn.Linear(reduced, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gates = torch.sigmoid(self.up(torch.relu(self.down(x.mean(dim=(2, 3))))))
        return x * gates[:, :, None, None]


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE) + torch.randn(BATCH, CHANNELS, 1, 1)]


def get_init_inputs():
    return [CHANNELS, REDUCED]
