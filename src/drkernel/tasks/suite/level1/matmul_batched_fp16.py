"""Many small products at once, in half precision."""

import torch
import torch.nn as nn

BATCH = 256
M = 512
N = 512
K = 256


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, M, K, dtype=torch.float16), torch.randn(BATCH, K, N, dtype=torch.float16)]


def get_init_inputs():
    return []
