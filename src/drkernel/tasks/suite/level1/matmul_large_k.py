"""A product with a small result and a very long sum: parallel only along the summed dimension."""

import torch
import torch.nn as nn

M = 256
N = 256
K = 524288


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
