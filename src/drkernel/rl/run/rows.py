"""Converts trajectories to tensors: one row per turn, and the id sequences that the model is run on.

Turns that only append to each other share a sequence: with the whole history in the context, a trajectory is one
sequence in which every turn's answer is trained. When a context policy leaves turns out, a new sequence starts with
that turn's own context and answer. Every answer is trained exactly once, after exactly the ids that the sampler read.
The paths of a tree share turns, and, if it forks within answers, stretches of them; a shared part is one row and is
trained once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drkernel.episode.chat import Sampled
from drkernel.episode.records import Origin, Trajectory, Turn
from drkernel.rl.model.policy import Example
from drkernel.rl.run.registry import TurnBatch


@dataclass(frozen=True)
class TokenSequence:
    """Ids to run the model on, and which of them are answers."""

    ids: tuple[int, ...]
    owner: int
    """Index of the trajectory."""
    rows: tuple[int, ...]
    """The rows of the batch whose tokens it trains, in order."""
    spans: tuple[tuple[int, int], ...]
    """For each of them the half-open range of its tokens within :attr:`ids`."""


@dataclass(frozen=True)
class Stretch:
    """The part of an answer that one row of a batch trains: the whole answer, or, if it was drawn in pieces, a part
    that no fork divides."""

    turn: Turn
    """The turn; the first of several that share the stretch."""
    owner: int
    """Index of the first trajectory that holds it."""
    start: int
    end: int
    """Half-open range of its tokens within the answer."""
    parent: int
    """Row of the stretch before it, -1 at the beginning of a conversation."""
    trains: bool
    """Whether it has a grade, or leads to a turn that has one."""

    @property
    def last(self) -> bool:
        """Whether the stretch ends its answer, so that it carries the reward."""
        return self.end == len(sampled_of(self.turn).token_ids)


def sampled_of(turn: Turn) -> Sampled:
    """Return the turn's token ids. Raises ``ValueError`` for a turn that was not sampled in this process."""
    if turn.sampled is None:
        raise ValueError(f"turn {turn.id} has no token ids: only turns of the training sampler can be trained on")
    return turn.sampled


def gradable(turn: Turn) -> bool:
    """Return whether a turn has a finite reward; only such turns count and train."""
    return turn.reward is not None and math.isfinite(turn.reward)


def overlong(turn: Turn) -> bool:
    """Return whether an answer was cut off: by its budget of tokens or by the end of the context."""
    if turn.sampled is None:
        return turn.reply.finish == "length"
    return turn.sampled.stop in ("length", "context")


def known(value: float | None) -> float:
    """Return a figure of a verdict as a number; a missing one counts as 0: unknown coverage is no coverage."""
    return 0.0 if value is None or math.isnan(value) else float(value)


Shared = tuple[int, str, int]
"""A stretch that paths of one tree share: group, turn, number within the turn. Its first turn names it."""


class _Pieces:
    """Finds the answers of a tree that share pieces, and hence where their stretches end."""

    def __init__(self, trajectories: Sequence[Trajectory]):
        self.after: dict[tuple[int, int], set[int]] = {}
        self.first: dict[tuple[int, int], str] = {}
        self.graded: set[tuple[int, int]] = set()
        for trajectory in (t for t in trajectories if t.tree):
            for turn in trajectory.turns:
                names = [(trajectory.group, name) for name, _ in sampled_of(turn).pieces]
                for name, following in itertools.pairwise(names):
                    self.after.setdefault(name, set()).add(following[1])
                for name in names:
                    self.first.setdefault(name, turn.id)
                    if gradable(turn):
                        self.graded.add(name)

    def stretches(self, trajectory: Trajectory, turn: Turn) -> list[tuple[int, str, bool]]:
        """Return, for a turn's stretches in order: where each ends, the first turn that holds it, and whether it
        trains."""
        drawn, group = sampled_of(turn), trajectory.group
        found: list[tuple[int, str, bool]] = []
        if not trajectory.tree:
            return [(len(drawn.token_ids), turn.id, gradable(turn))]
        for name, end in drawn.pieces[:-1]:
            if len(self.after[group, name]) > 1:
                found.append((end, self.first[group, name], (group, name) in self.graded))
        return [*found, (len(drawn.token_ids), turn.id, gradable(turn))]


def lay_out(trajectories: Sequence[Trajectory]) -> tuple[list[Stretch], list[TokenSequence]]:
    """Lay out the rows of a batch and the sequences to run the model on, ordered by trajectory and turn.

    A part that paths of a tree share is one row, trained in the sequence of the first of them.
    """
    pieces = _Pieces(trajectories)
    rows: list[Stretch] = []
    known: dict[Shared, int] = {}
    sequences: list[TokenSequence] = []
    for owner, trajectory in enumerate(trajectories):
        present: TokenSequence | None = None
        before = -1
        origin = trajectory.origin or Origin()
        for turn in trajectory.turns[origin.turn - 1 :]:
            drawn = sampled_of(turn)
            begin = len(drawn.context_ids)
            ids = drawn.context_ids + drawn.token_ids
            own: list[int] = []
            start = origin.token if turn.number == origin.turn else 0
            for number, (end, first, trains) in enumerate(pieces.stretches(trajectory, turn)):
                key = (trajectory.group, first, number)
                row = known.get(key) if trajectory.tree else None
                if row is None:
                    row = len(rows)
                    rows.append(Stretch(turn, owner, start, end, before, trains))
                    own.append(row)
                    if trajectory.tree:
                        known[key] = row
                before, start = row, end
            if not own:
                continue
            spans = tuple((begin + rows[row].start, begin + rows[row].end) for row in own)
            if present is not None and drawn.context_ids[: len(present.ids)] == present.ids:
                sequences.pop()
                present = TokenSequence(ids, owner, present.rows + tuple(own), present.spans + spans)
            else:
                present = TokenSequence(ids, owner, tuple(own), spans)
            sequences.append(present)
    return rows, sequences


@dataclass(frozen=True)
class Rows:
    """The turns of a batch of trajectories as padded tensors, one row a turn (or a stretch of one)."""

    trajectories: tuple[Trajectory, ...]
    stretches: tuple[Stretch, ...]
    """The stretch of each row, ordered by trajectory and turn."""
    sequences: tuple[TokenSequence, ...]
    owner_B: Tensor
    """index of the row's trajectory"""
    mask_BT: Tensor
    """True on sampled tokens of turns that have a grade"""
    rollout_BT: Tensor
    """the sampler's log-probabilities"""

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turn of each row."""
        return tuple(stretch.turn for stretch in self.stretches)

    @staticmethod
    def of(trajectories: Sequence[Trajectory]) -> Rows:
        """Build the rows, ordered by trajectory and turn."""
        stretches, sequences = lay_out(trajectories)
        width = max((stretch.end for stretch in stretches), default=0)
        mask_BT = torch.zeros(len(stretches), width, dtype=torch.bool)
        rollout_BT = torch.zeros(len(stretches), width)
        for row, part in enumerate(stretches):
            where = slice(part.start, part.end)
            mask_BT[row, where] = part.trains
            rollout_BT[row, where] = torch.tensor(sampled_of(part.turn).logprobs[where])
        owner_B = torch.tensor([part.owner for part in stretches], dtype=torch.int64)
        return Rows(tuple(trajectories), tuple(stretches), tuple(sequences), owner_B, mask_BT, rollout_BT)

    def batch(self) -> TurnBatch:
        """Return the inputs of advantages and rejections."""

        def figures(name: str) -> Tensor:
            return torch.tensor([0.0 if turn is None else known(getattr(turn, name)) for turn in turns])

        # what comes before the last stretch of an answer has no grade of its own: it earns by what follows
        turns = [part.turn if part.last else None for part in self.stretches]
        rewards = [float(turn.reward or 0.0) if turn is not None and gradable(turn) else 0.0 for turn in turns]
        tree = any(trajectory.tree for trajectory in self.trajectories)
        return TurnBatch(
            rewards_B=torch.tensor(rewards),
            task_B=torch.tensor([self.trajectories[i].group for i in self.owner_B.tolist()], dtype=torch.int64),
            trajectory_B=self.owner_B,
            turn_B=torch.tensor([part.turn.number - 1 for part in self.stretches], dtype=torch.int64),
            valid_B=torch.tensor([part.trains for part in self.stretches], dtype=torch.bool),
            correct_B=torch.tensor([turn is not None and turn.correct for turn in turns], dtype=torch.bool),
            coverage_B=figures("counted_coverage"),
            launch_coverage_B=figures("launch_coverage"),
            speedup_B=figures("speedup"),
            overlong_B=torch.tensor([turn is not None and overlong(turn) for turn in turns], dtype=torch.bool),
            parent_B=torch.tensor([part.parent for part in self.stretches], dtype=torch.int64) if tree else None,
            **self._states(),
        )

    def _states(self) -> dict[str, Tensor]:
        """Return, for partial rollouts, the state that each row's trajectory started from, and the state before that
        one."""
        if any(trajectory.origin is None for trajectory in self.trajectories) or not self.trajectories:
            return {}
        places = [
            (t.group, t.origin.base if t.origin and t.origin.order else -1, t.origin.order if t.origin else 0)
            for t in self.trajectories
        ]  # the task itself belongs to no base rollout
        number = {place: index for index, place in enumerate(sorted(set(places)))}

        def before(place: tuple[int, int, int]) -> int:
            group, base, order = place
            earlier = [k for g, b, k in number if (g, b) == (group, base) and k < order]
            return number.get((group, base, max(earlier)) if earlier else (group, -1, 0), -1) if order else -1

        owners = self.owner_B.tolist()
        return {
            "state_B": torch.tensor([number[places[i]] for i in owners], dtype=torch.int64),
            "before_B": torch.tensor([before(places[i]) for i in owners], dtype=torch.int64),
        }

    def graded(self) -> list[int]:
        """Indices of sequences with at least one graded turn; the others need no computation."""
        return [
            index for index, sequence in enumerate(self.sequences) if any(self._trains(row) for row in sequence.rows)
        ]

    def _trains(self, row: int) -> bool:
        part = self.stretches[row]
        return part.trains and part.end > part.start

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
            mask[start:end] = [self.stretches[row].trains] * (end - start)
        return Example(sequence.ids, mask)

    def pick(self, members: Sequence[int]) -> Tensor:
        """Return the row indices of these sequences, in the order of ``members``."""
        return torch.tensor([row for index in members for row in self.sequences[index].rows], dtype=torch.int64)

    def spread(self, values_M: Tensor, rows_R: Tensor) -> Tensor:
        """Scatter flat values of the masked tokens of ``rows_R`` to [R, T], 0 elsewhere; differentiable."""
        mask_RT = self.mask_BT[rows_R].to(values_M.device)
        return values_M.new_zeros(mask_RT.shape).masked_scatter(mask_RT, values_M)
