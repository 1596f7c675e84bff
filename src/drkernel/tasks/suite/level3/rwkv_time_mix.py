"""RWKV-4 time mixing: token shift, projections, and the decaying weighted average kept stable by a running maximum."""

import torch
import torch.nn as nn

BATCH = 8
LENGTH = 1024
FEATURES = 2048


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.mix = nn.Parameter(torch.rand(3, features))
        self.decay = nn.Parameter(torch.rand(features) * 2 - 1)
        self.bonus = nn.Parameter(torch.randn(features) * 0.5)
        self.key = nn.Linear(features, features, bias=False)
        self.value = nn.Linear(features, features, bias=False)
        self.receptance = nn.Linear(features, features, bias=False)
        self.output = nn.Linear(features, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        k = self.key(x * self.mix[0] + before * (1 - self.mix[0]))
        v = self.value(x * self.mix[1] + before * (1 - self.mix[1]))
        r = torch.sigmoid(self.receptance(x * self.mix[2] + before * (1 - self.mix[2])))
        decay = -torch.exp(self.decay)
        top, total = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        largest = torch.full_like(x[:, 0], -1e30)
        outputs = []
        for step in range(x.shape[1]):
            now = torch.maximum(largest, self.bonus + k[:, step])
            old, new = torch.exp(largest - now), torch.exp(self.bonus + k[:, step] - now)
            outputs.append((old * top + new * v[:, step]) / (old * total + new))
            now = torch.maximum(largest + decay, k[:, step])
            old, new = torch.exp(largest + decay - now), torch.exp(k[:, step] - now)
            top, total, largest = old * top + new * v[:, step], old * total + new, now
        return self.output(r * torch.stack(outputs, dim=1))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES)]


def get_init_inputs():
    return [FEATURES]
