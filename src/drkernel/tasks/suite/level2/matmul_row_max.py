"""Largest similarity of each query with any key, scaled: the score matrix need never be stored."""

import torch
import torch.nn as nn

M = 8192
N = 16384
K = 256


class Model(nn.Module):
    def forward(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        scores = torch.matmul(queries, keys.T) * queries.shape[-1] ** -0.5
        return scores.max(dim=-1).values


def get_inputs():
    return [torch.randn(M, K), torch.randn(N, K)]


def get_init_inputs():
    return []
