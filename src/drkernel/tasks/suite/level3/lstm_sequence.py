"""An LSTM written out step by step; the outputs of all steps and the last cell state are returned."""

import torch
import torch.nn as nn

BATCH = 128
LENGTH = 256
FEATURES = 512
HIDDEN = 512


class Model(nn.Module):
    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.hidden = hidden
        self.from_input = nn.Linear(features, 4 * hidden)
        self.from_state = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: torch.Tensor):
        h = torch.zeros(x.shape[0], self.hidden, dtype=x.dtype, device=x.device)
        c = torch.zeros_like(h)
        projected = self.from_input(x)
        outputs = []
        for step in range(x.shape[1]):
            i, f, g, o = (projected[:, step] + self.from_state(h)).chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, dim=1), c


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN]
