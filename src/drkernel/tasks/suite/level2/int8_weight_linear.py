"""Linear layer with eight-bit weights and one scale for each output feature."""

import torch
import torch.nn as nn

ROWS = 64
FEATURES = 8192
OUT_FEATURES = 8192


class Model(nn.Module):
    def __init__(self, features: int, out_features: int):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (out_features, features), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(out_features) * 0.01 + 0.005)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight.to(x.dtype).T) * self.scale


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES, OUT_FEATURES]
