"""Routing of a mixture of experts: softmax over experts, the best few, their weights made to sum to one."""

import torch
import torch.nn as nn

TOKENS = 32768
FEATURES = 2048
EXPERTS = 128
CHOSEN = 8


class Model(nn.Module):
    def __init__(self, features: int, experts: int, chosen: int):
        super().__init__()
        self.gate = nn.Linear(features, experts, bias=False)
        self.chosen = chosen

    def forward(self, x: torch.Tensor):
        probabilities = torch.softmax(self.gate(x) * 3.0, dim=-1)
        weights, experts = torch.topk(probabilities, self.chosen, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True), experts


def get_inputs():
    return [torch.randn(TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES, EXPERTS, CHOSEN]
