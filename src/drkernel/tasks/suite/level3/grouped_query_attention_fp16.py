"""Attention where several query heads share one key and value head, in half precision."""

import torch
import torch.nn as nn

BATCH = 8
HEADS = 32
GROUPS = 8
LENGTH = 2048
HEAD_SIZE = 128


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        shared = q.shape[1] // k.shape[1]
        k = k.repeat_interleave(shared, dim=1)
        v = v.repeat_interleave(shared, dim=1)
        scores = (q @ k.transpose(-2, -1)).float() * q.shape[-1] ** -0.5
        return torch.softmax(scores, dim=-1).to(q.dtype) @ v


def get_inputs():
    half = torch.float16
    return [
        torch.randn(BATCH, HEADS, LENGTH, HEAD_SIZE, dtype=half),
        torch.randn(BATCH, GROUPS, LENGTH, HEAD_SIZE, dtype=half),
        torch.randn(BATCH, GROUPS, LENGTH, HEAD_SIZE, dtype=half),
    ]


def get_init_inputs():
    return []
