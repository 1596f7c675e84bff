"""Product of two lower-triangular matrices; the result is lower triangular too."""

import torch
import torch.nn as nn

SIZE = 4096


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tril(torch.matmul(a, b))


def get_inputs():
    return [torch.tril(torch.randn(SIZE, SIZE)), torch.tril(torch.randn(SIZE, SIZE))]


def get_init_inputs():
    return []
