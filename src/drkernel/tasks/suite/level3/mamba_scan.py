"""The selective state-space scan of Mamba: h = exp(dt A) h + dt B x, y = C h + D x."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8
LENGTH = 1024
CHANNELS = 2048
STATES = 16


class Model(nn.Module):
    def __init__(self, channels: int, states: int):
        super().__init__()
        self.log_a = nn.Parameter(torch.rand(channels, states))
        self.skip = nn.Parameter(torch.ones(channels))
        self.dt_bias = nn.Parameter(torch.randn(channels) * 0.5 - 1.0)

    def forward(self, x: torch.Tensor, dt: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        dt = F.softplus(dt + self.dt_bias)
        decay = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.log_a))
        update = (dt * x).unsqueeze(-1) * b.unsqueeze(2)
        state = torch.zeros(x.shape[0], x.shape[2], self.log_a.shape[1], dtype=x.dtype, device=x.device)
        outputs = []
        for step in range(x.shape[1]):
            state = decay[:, step] * state + update[:, step]
            outputs.append((state * c[:, step].unsqueeze(1)).sum(dim=-1))
        return torch.stack(outputs, dim=1) + x * self.skip


def get_inputs():
    return [
        torch.randn(BATCH, LENGTH, CHANNELS),
        torch.randn(BATCH, LENGTH, CHANNELS),
        torch.randn(BATCH, LENGTH, STATES),
        torch.randn(BATCH, LENGTH, STATES),
    ]


def get_init_inputs():
    return [CHANNELS, STATES]
