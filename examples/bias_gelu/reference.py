"""A bias and GELU (tanh form) in half precision."""

import torch

ROWS, COLS = 64, 1024


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(COLS, dtype=torch.float16))

    def forward(self, x):
        return torch.nn.functional.gelu(x + self.bias, approximate="tanh")


def get_inputs():
    return [torch.randn(ROWS, COLS, dtype=torch.float16)]
