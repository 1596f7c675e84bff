"""A tall, skinny matrix times a small one: limited by memory, not by arithmetic."""

import torch
import torch.nn as nn

M = 1048576
N = 32
K = 128


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
