"""One-dimensional convolution with stride, dilation and bias."""

import torch
import torch.nn as nn

BATCH = 64
IN_CHANNELS = 128
OUT_CHANNELS = 256
LENGTH = 8192
KERNEL = 5
STRIDE = 2
DILATION = 3


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int, dilation: int):
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel, stride=stride, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, LENGTH)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS, KERNEL, STRIDE, DILATION]
