"""Token and position embeddings summed and normalised, as at the entrance of an encoder."""

import torch
import torch.nn as nn

TOKENS = 16384
VOCABULARY = 32768
FEATURES = 1024


class Model(nn.Module):
    def __init__(self, vocabulary: int, tokens: int, features: int):
        super().__init__()
        self.token = nn.Embedding(vocabulary, features)
        self.position = nn.Embedding(tokens, features)
        self.norm = nn.LayerNorm(features)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.norm(self.token(tokens) + self.position.weight[: tokens.shape[0]])


def get_inputs():
    return [torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs():
    return [VOCABULARY, TOKENS, FEATURES]
