"""Per-head root-mean-square normalisation of queries, then rotation by given angles, in bfloat16."""

import torch
import torch.nn as nn

TOKENS = 16384
HEADS = 32
HEAD_SIZE = 128


class Model(nn.Module):
    def __init__(self, head_size: int):
        super().__init__()
        self.norm = nn.RMSNorm(head_size, eps=1e-6, dtype=torch.bfloat16)

    def forward(self, q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = self.norm(q).float().chunk(2, dim=-1)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(q.dtype)


FIXED_INPUTS = ("cos", "sin")


def get_inputs():
    angle = torch.rand(TOKENS, HEAD_SIZE // 2) * 6.2831853
    return [torch.randn(TOKENS, HEADS, HEAD_SIZE, dtype=torch.bfloat16), angle.cos(), angle.sin()]


def get_init_inputs():
    return [HEAD_SIZE]
