"""A times B transposed in half precision: both operands are contiguous along the summed dimension."""

import torch
import torch.nn as nn

M = 8192
N = 8192
K = 4096


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b.T


def get_inputs():
    return [torch.randn(M, K, dtype=torch.float16), torch.randn(N, K, dtype=torch.float16)]


def get_init_inputs():
    return []
