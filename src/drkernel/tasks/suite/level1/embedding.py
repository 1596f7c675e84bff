"""Rows of a table chosen by index."""

import torch
import torch.nn as nn

TOKENS = 65536
VOCABULARY = 131072
FEATURES = 2048


class Model(nn.Module):
    def __init__(self, vocabulary: int, features: int):
        super().__init__()
        self.table = nn.Embedding(vocabulary, features)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table(tokens)


def get_inputs():
    return [torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs():
    return [VOCABULARY, FEATURES]
