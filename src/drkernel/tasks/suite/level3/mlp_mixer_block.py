"""MLP-Mixer block: one feed-forward layer across patches, one across features, each with a residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 128
PATCHES = 196
FEATURES = 768
HIDDEN = 3072


class Model(nn.Module):
    def __init__(self, patches: int, features: int, hidden: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(features)
        self.across1 = nn.Linear(patches, hidden)
        self.across2 = nn.Linear(hidden, patches)
        self.norm2 = nn.LayerNorm(features)
        self.along1 = nn.Linear(features, hidden)
        self.along2 = nn.Linear(hidden, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x).transpose(1, 2)
        x = x + self.across2(F.gelu(self.across1(y))).transpose(1, 2)
        return x + self.along2(F.gelu(self.along1(self.norm2(x))))


def get_inputs():
    return [torch.randn(BATCH, PATCHES, FEATURES)]


def get_init_inputs():
    return [PATCHES, FEATURES, HIDDEN]
