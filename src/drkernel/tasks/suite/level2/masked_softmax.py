"""Scaled scores under a boolean mask, then softmax. Every query sees at least one key."""

import torch
import torch.nn as nn

BATCH = 8
HEADS = 16
QUERIES = 2048
KEYS = 2048
SCALE = 0.125


class Model(nn.Module):
    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax((scores * self.scale).masked_fill(~mask, float("-inf")), dim=-1)


def get_inputs():
    mask = torch.rand(BATCH, 1, QUERIES, KEYS) < 0.7
    mask[..., 0] = True
    return [torch.randn(BATCH, HEADS, QUERIES, KEYS) * 8, mask]


def get_init_inputs():
    return [SCALE]
