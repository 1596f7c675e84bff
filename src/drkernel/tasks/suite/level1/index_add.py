"""Rows added into a table at given places; several may go to one place."""

import torch
import torch.nn as nn

ROWS = 32768
ADDED = 262144
FEATURES = 512


class Model(nn.Module):
    def forward(self, table: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.index_add(table, 0, index, rows)


def get_inputs():
    return [torch.randn(ROWS, FEATURES), torch.randint(0, ROWS, (ADDED,)), torch.randn(ADDED, FEATURES)]


def get_init_inputs():
    return []
