"""Entrance of a vision transformer: patches projected, a class token put before them, positions added, normalised."""

import torch
import torch.nn as nn

BATCH = 256
SIZE = 224
PATCH = 16
FEATURES = 768


class Model(nn.Module):
    def __init__(self, size: int, patch: int, features: int):
        super().__init__()
        self.project = nn.Conv2d(3, features, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, features))
        self.position = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, features))
        self.norm = nn.LayerNorm(features)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = self.project(image).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(image.shape[0], -1, -1), patches], dim=1)
        return self.norm(tokens + self.position)


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return [SIZE, PATCH, FEATURES]
