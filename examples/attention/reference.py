"""Attention of several heads, written out."""

import torch

BATCH, HEADS, LENGTH, WIDTH = 1, 4, 128, 32


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) * WIDTH**-0.5
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH) for _ in range(3)]
