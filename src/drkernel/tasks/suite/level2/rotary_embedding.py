"""Rotary position embedding of queries, halves rotated as in GPT-NeoX."""

import torch
import torch.nn as nn

BATCH = 8
HEADS = 32
LENGTH = 4096
HEAD_SIZE = 128
BASE = 10000.0


class Model(nn.Module):
    def __init__(self, length: int, head_size: int, base: float):
        super().__init__()
        frequency = base ** (-torch.arange(0, head_size, 2).float() / head_size)
        angle = torch.outer(torch.arange(length).float(), frequency)
        self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()], dim=-1))
        self.register_buffer("sin", torch.cat([angle.sin(), angle.sin()], dim=-1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        rotated = torch.cat([-second, first], dim=-1)
        return x * self.cos + rotated * self.sin


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, HEAD_SIZE)]


def get_init_inputs():
    return [LENGTH, HEAD_SIZE, BASE]
