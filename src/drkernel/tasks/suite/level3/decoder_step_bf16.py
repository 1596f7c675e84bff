"""One decoding step against a key-value cache with a length for each sequence, in bfloat16."""

import torch
import torch.nn as nn

BATCH = 64
HEADS = 32
GROUPS = 8
CACHED = 8192
HEAD_SIZE = 128


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        batch, heads, size = q.shape
        groups, cached = k.shape[1], k.shape[2]
        q = q.view(batch, groups, heads // groups, size)
        scores = (q @ k.transpose(-2, -1)).float() * size**-0.5
        past = torch.arange(cached, device=q.device) >= lengths[:, None, None, None]
        weights = torch.softmax(scores.masked_fill(past, float("-inf")), dim=-1).to(v.dtype)
        return (weights @ v).reshape(batch, heads, size)


def get_inputs():
    brain = torch.bfloat16
    return [
        torch.randn(BATCH, HEADS, HEAD_SIZE, dtype=brain),
        torch.randn(BATCH, GROUPS, CACHED, HEAD_SIZE, dtype=brain),
        torch.randn(BATCH, GROUPS, CACHED, HEAD_SIZE, dtype=brain),
        torch.randint(CACHED // 2, CACHED + 1, (BATCH,)),
    ]


def get_init_inputs():
    return []
