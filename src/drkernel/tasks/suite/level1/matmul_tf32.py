"""Product of two single-precision matrices where operands may be rounded to TF32, as tensor cores do."""

import torch
import torch.nn as nn

M = 8192
N = 8192
K = 4096


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
