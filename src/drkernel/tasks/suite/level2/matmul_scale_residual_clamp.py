"""A product scaled, added to a residual and clamped."""

import torch
import torch.nn as nn

M = 4096
N = 4096
K = 4096
SCALE = 0.25
LIMIT = 3.0


class Model(nn.Module):
    def __init__(self, scale: float, limit: float):
        super().__init__()
        self.scale = scale
        self.limit = limit

    def forward(self, a: torch.Tensor, b: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return torch.clamp(torch.matmul(a, b) * self.scale + residual, -self.limit, self.limit)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N), torch.randn(M, N)]


def get_init_inputs():
    return [SCALE, LIMIT]
