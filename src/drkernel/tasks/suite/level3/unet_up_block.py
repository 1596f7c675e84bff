"""A decoder block of a U-Net: upsample, join the skip connection, two normalised convolutions."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16
CHANNELS = 128
SIZE = 64


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels // 2, 2, stride=2)
        self.conv1 = nn.Conv2d(channels, channels // 2, 3, padding=1)
        self.norm1 = nn.GroupNorm(2, channels // 2)
        self.conv2 = nn.Conv2d(channels // 2, channels // 2, 3, padding=1)
        self.norm2 = nn.GroupNorm(2, channels // 2)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        y = torch.cat([self.up(x), skip], dim=1)
        y = F.silu(self.norm1(self.conv1(y)))
        return F.silu(self.norm2(self.conv2(y)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE), torch.randn(BATCH, CHANNELS // 2, 2 * SIZE, 2 * SIZE)]


def get_init_inputs():
    return [CHANNELS]
