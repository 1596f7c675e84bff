"""Converts trajectories to tensors: one row per turn, and the id sequences that the model is run on.

Turns that only append to each other share a sequence: with the whole history in the context, a trajectory is one
sequence in which every turn's answer is trained. When a context policy leaves turns out, a new sequence starts with
that turn's own context and answer. Every answer is trained exactly once, after exactly the ids that the sampler read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drkernel.episode.chat import Sampled
from drkernel.episode.records import Trajectory, Turn
from drkernel.rl.model.policy import Example
from drkernel.rl.run.registry import TurnBatch


@dataclass(frozen=True)
class TokenSequence:
    """Ids to run the model on, and which of them are answers."""

    ids: tuple[int, ...]
    owner: int
    """Index of the trajectory."""
    rows: tuple[int, ...]
    """The turns whose answers the sequence holds, as rows of the batch, in order."""
    spans: tuple[tuple[int, int], ...]
    """For each of these turns, the half-open range of its answer within :attr:`ids`."""


def sampled_of(turn: Turn) -> Sampled:
    """Return the turn's token ids. Raises ``ValueError`` for a turn that was not sampled in this process."""
    if turn.sampled is None:
        raise ValueError(f"turn {turn.id} has no token ids: only turns of the training sampler can be trained on")
    return turn.sampled


def gradable(turn: Turn) -> bool:
    """Return whether a turn has a finite reward; only such turns count and train."""
    return turn.reward is not None and math.isfinite(turn.reward)


def token_sequences(trajectories: Sequence[Trajectory]) -> list[TokenSequence]:
    """Return the sequences of all turns, ordered by trajectory and turn; rows number the turns in that order."""
    sequences: list[TokenSequence] = []
    row = 0
    for owner, trajectory in enumerate(trajectories):
        present: TokenSequence | None = None
        for turn in trajectory.turns:
            drawn = sampled_of(turn)
            ids = drawn.context_ids + drawn.token_ids
            rows, spans = (row,), ((len(drawn.context_ids), len(ids)),)
            if present is not None and drawn.context_ids[: len(present.ids)] == present.ids:
                sequences.pop()
                rows, spans = present.rows + rows, present.spans + spans  # type: ignore[assignment]
            present = TokenSequence(ids, owner, rows, spans)
            sequences.append(present)
            row += 1
    return sequences


@dataclass(frozen=True)
class Rows:
    """The turns of a batch of trajectories as padded tensors, one row a turn."""

    trajectories: tuple[Trajectory, ...]
    turns: tuple[Turn, ...]
    """The turn of each row, ordered by trajectory and turn."""
    sequences: tuple[TokenSequence, ...]
    owner_B: Tensor
    """index of the row's trajectory"""
    mask_BT: Tensor
    """True on sampled tokens of turns that have a grade"""
    rollout_BT: Tensor
    """the sampler's log-probabilities"""

    @staticmethod
    def of(trajectories: Sequence[Trajectory]) -> Rows:
        """Build the rows, ordered by trajectory and turn."""
        owned = [(index, turn) for index, t in enumerate(trajectories) for turn in t.turns]
        width = max((len(sampled_of(turn).token_ids) for _, turn in owned), default=0)
        mask_BT = torch.zeros(len(owned), width, dtype=torch.bool)
        rollout_BT = torch.zeros(len(owned), width)
        for row, (_, turn) in enumerate(owned):
            drawn = sampled_of(turn)
            mask_BT[row, : len(drawn.token_ids)] = gradable(turn)
            rollout_BT[row, : len(drawn.token_ids)] = torch.tensor(drawn.logprobs)
        owner_B = torch.tensor([index for index, _ in owned], dtype=torch.int64)
        turns = tuple(turn for _, turn in owned)
        return Rows(tuple(trajectories), turns, tuple(token_sequences(trajectories)), owner_B, mask_BT, rollout_BT)

    def batch(self) -> TurnBatch:
        """Return the inputs of advantages and rejections. # what a verdict does a missing value counts as 0: unknown
        coverage is no coverage"""

        def known(values: Iterable[float | None]) -> Tensor:
            # what a verdict does not say counts as nothing: unknown coverage is no coverage
            return torch.tensor([0.0 if value is None or math.isnan(value) else value for value in values])

        turns = self.turns
        return TurnBatch(
            rewards_B=torch.tensor([float(turn.reward or 0.0) if gradable(turn) else 0.0 for turn in turns]),
            task_B=torch.tensor([self.trajectories[i].group for i in self.owner_B.tolist()], dtype=torch.int64),
            trajectory_B=self.owner_B,
            turn_B=torch.tensor([turn.number - 1 for turn in turns], dtype=torch.int64),
            valid_B=torch.tensor([gradable(turn) for turn in turns], dtype=torch.bool),
            correct_B=torch.tensor([turn.correct for turn in turns], dtype=torch.bool),
            coverage_B=known(turn.coverage for turn in turns),
            launch_coverage_B=known(turn.launch_coverage for turn in turns),
            speedup_B=known(turn.speedup for turn in turns),
        )

    def graded(self) -> list[int]:
        """Indices of sequences with at least one graded turn; the others need no computation."""
        return [
            index for index, sequence in enumerate(self.sequences) if any(self._trains(row) for row in sequence.rows)
        ]

    def _trains(self, row: int) -> bool:
        return gradable(self.turns[row]) and bool(sampled_of(self.turns[row]).token_ids)

    def of_trajectories(self, members: Sequence[int]) -> list[int]:
        """Return the sequences of the trajectories with these indices."""
        wanted = set(members)
        return [index for index, sequence in enumerate(self.sequences) if sequence.owner in wanted]

    def examples(self, members: Sequence[int]) -> list[Example]:
        """Return the sequences with these indices, with the answers of graded turns in the mask."""
        return [self._example(self.sequences[index]) for index in members]

    def _example(self, sequence: TokenSequence) -> Example:
        mask = [False] * len(sequence.ids)
        for row, (start, end) in zip(sequence.rows, sequence.spans, strict=True):
            mask[start:end] = [gradable(self.turns[row])] * (end - start)
        return Example(sequence.ids, mask)

    def pick(self, members: Sequence[int]) -> Tensor:
        """Return the row indices of these sequences, in the order of ``members``."""
        return torch.tensor([row for index in members for row in self.sequences[index].rows], dtype=torch.int64)

    def spread(self, values_M: Tensor, rows_R: Tensor) -> Tensor:
        """Scatter flat values of the masked tokens of ``rows_R`` to [R, T], 0 elsewhere; differentiable."""
        mask_RT = self.mask_BT[rows_R].to(values_M.device)
        return values_M.new_zeros(mask_RT.shape).masked_scatter(mask_RT, values_M)
