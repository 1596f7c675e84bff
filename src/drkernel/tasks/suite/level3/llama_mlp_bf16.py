"""The feed-forward half of a Llama layer in bfloat16: RMS norm, SwiGLU, projection, residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 8192
FEATURES = 4096
HIDDEN = 11008


class Model(nn.Module):
    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.norm = nn.RMSNorm(features, eps=1e-5, dtype=torch.bfloat16)
        self.gate = nn.Linear(features, hidden, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(features, hidden, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(hidden, features, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def get_inputs():
    return [torch.randn(ROWS, FEATURES, dtype=torch.bfloat16)]


def get_init_inputs():
    return [FEATURES, HIDDEN]
