"""The data that travel through verl's queue with a trajectory, and the columns that verl trains on.

Nothing here needs verl or Ray. Shapes as in :class:`drkernel.rl.run.learner.TurnRows`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drkernel.rl.maths.losses import denominator
from drkernel.rl.model.sampler import RequestSampler, SamplingConfig
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.learner import Credit, LearnerConfig, TurnFacts, TurnRows, give_credit

Ask = Callable[[list[int], int], Awaitable[tuple[tuple[int, ...], tuple[float, ...]]]]
"""(ids, room for tokens) -> sampled ids and their log-probabilities."""
WIDTH = len(dataclasses.fields(TurnFacts))


def pack(turns: Sequence[TurnFacts]) -> Tensor:
    """Return the turns of a trajectory as one flat column of numbers, float64 [turns * WIDTH]."""
    return torch.tensor([float(value) for turn in turns for value in dataclasses.astuple(turn)], dtype=torch.float64)


def unpack(column: Tensor) -> list[TurnFacts]:
    """Return the turns that :func:`pack` wrote."""
    rows = column.reshape(-1, WIDTH).tolist()
    kinds = [{"int": int, "bool": bool, "float": float}[str(field.type)] for field in dataclasses.fields(TurnFacts)]
    return [TurnFacts(*(kind(value) for kind, value in zip(kinds, row, strict=True))) for row in rows]


def token_rewards(turns: Sequence[TurnFacts], length: int) -> Tensor:
    """Return each turn's reward at the last token of its answer, float32 [length]."""
    rewards = torch.zeros(length)
    for turn in turns:
        if turn.graded and turn.end > turn.start:
            rewards[turn.end - 1] = turn.reward
    return rewards


@dataclass(frozen=True)
class Lesson:
    """The columns that verl trains on, [B, T] like its own."""

    advantages_BT: Tensor
    mask_BT: Tensor
    """bool: the tokens that train"""
    weights_BT: Tensor
    """A factor for each token's loss, so that verl's sum over tokens is our aggregation."""
    shares_BT: Tensor
    """The same without the weights of the mismatch, for the KL penalty."""
    metrics: dict[str, float]


class VerlSampler(RequestSampler):
    """verl's sampler in the place of ours; it draws with seeds of its own."""

    def __init__(self, ask: Ask, tokenizer: ChatTokenizer, config: SamplingConfig, capacity: int):
        super().__init__(tokenizer, config, capacity)
        self._ask = ask

    async def ask(self, ids: list[int], room: int, seed: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return what verl's server draws."""
        return await self._ask(list(ids), room)


def teach(
    rows: TurnRows,
    old_BT: Tensor,
    rollout_BT: Tensor,
    square_BT: Tensor,
    config: LearnerConfig,
    *,
    seed: int,
    sequences: float,
    planned: int | None = None,
) -> Lesson:
    """Compute advantages, mask and weights of a batch by :func:`~drkernel.rl.run.learner.give_credit`.

    verl divides its sum over tokens by ``sequences``, a number it fixes in advance; the weights undo that. ``planned``
    as of :class:`~drkernel.rl.run.learner.Learner`.
    """
    credit = give_credit(rows.batch(old_BT, square_BT), rows.take(rollout_BT), config, seed)
    share_RJ = sequences * _shares(credit, config, planned) * credit.mask_BT
    return Lesson(
        advantages_BT=rows.put_back((credit.advantages_BT * credit.mask_BT).float()),
        mask_BT=rows.put_back(credit.mask_BT.to(torch.int64)).bool(),
        weights_BT=rows.put_back((share_RJ * credit.mismatch.weights_BT).float()),
        shares_BT=rows.put_back(share_RJ.float()),
        metrics={name: value for name, value in credit.metrics.items() if math.isfinite(value)},
    )


def _shares(credit: Credit, config: LearnerConfig, planned: int | None) -> Tensor:
    """Return the weight of a token's loss in the aggregated loss, [R, J], before importance weights."""
    mask_RJ = credit.mask_BT
    if config.aggregation == "fixed_scale_sum":
        turns = max(1, mask_RJ.shape[0] if planned is None else planned)
        total = torch.tensor(turns * config.scale, dtype=torch.float64)
    else:
        total = denominator(mask_RJ, config.aggregation).clamp_min(1).double()
    share_RJ = (1.0 / total).expand(mask_RJ.shape)
    if config.aggregation == "seq_mean_token_mean":
        share_RJ = share_RJ / mask_RJ.sum(dim=1, keepdim=True).clamp_min(1)
    return share_RJ
