"""Recurrent layers without data: the results of cuDNN's single call, which other devices would decompose."""

from __future__ import annotations

from typing import Any

import torch

RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def recurrent_results(
    kind: str, x: torch.Tensor, hidden: Any, weights: Any, biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Empty results of a recurrent layer, whose own decomposition takes seconds even on meta tensors."""
    state = hidden[0] if isinstance(hidden, (tuple, list)) else hidden
    out = x.new_empty(*x.shape[:-1], (2 if bidirectional else 1) * state.shape[-1])
    return (out, *[x.new_empty(state.shape) for _ in range(2 if kind == "lstm" else 1)])
