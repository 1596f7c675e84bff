"""SwiGLU of a packed gate and value: silu(gate) * value."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 16384
FEATURES = 11008


class Model(nn.Module):
    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        gate, value = packed.chunk(2, dim=-1)
        return F.silu(gate) * value


def get_inputs():
    return [torch.randn(ROWS, 2 * FEATURES, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
