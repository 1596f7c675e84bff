"""A mixture of experts: route each token to the best few, apply their feed-forward layers, add up by weight."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 8192
FEATURES = 1024
HIDDEN = 1024
EXPERTS = 32
CHOSEN = 4


class Model(nn.Module):
    def __init__(self, features: int, hidden: int, experts: int, chosen: int):
        super().__init__()
        self.chosen = chosen
        self.gate = nn.Linear(features, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, features, hidden) * features**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, features) * hidden**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = torch.topk(torch.softmax(self.gate(x) * 2.0, dim=-1), self.chosen, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(x)
        for expert in range(self.up.shape[0]):
            tokens, slot = torch.where(experts == expert)
            hidden = F.silu(x[tokens] @ self.up[expert])
            out = out.index_add(0, tokens, (hidden @ self.down[expert]) * weights[tokens, slot, None])
        return out


def get_inputs():
    return [torch.randn(TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN, EXPERTS, CHOSEN]
