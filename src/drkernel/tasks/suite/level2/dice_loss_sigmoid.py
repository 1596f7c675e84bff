"""Soft dice loss of each image from logits and a binary target."""

import torch
import torch.nn as nn

BATCH = 128
PIXELS = 1048576
SMOOTH = 1.0


class Model(nn.Module):
    def __init__(self, smooth: float):
        super().__init__()
        self.smooth = smooth

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(logits)
        overlap = (p * target).sum(dim=-1)
        return 1 - (2 * overlap + self.smooth) / (p.sum(dim=-1) + target.sum(dim=-1) + self.smooth)


def get_inputs():
    return [torch.randn(BATCH, PIXELS), (torch.rand(BATCH, PIXELS) < 0.4).float()]


def get_init_inputs():
    return [SMOOTH]
