"""Converts trajectories to tensors: one row per turn, and the id sequences that the model is run on. :class:`Rows` is
of our own trainer, :class:`TurnRows` of engines that keep one row a trajectory; both make the same batch of them.

Turns that only append to each other share a sequence: with the whole history in the context, a trajectory is one
sequence in which every turn's answer is trained. When a context policy leaves turns out, a new sequence starts with
that turn's own context and answer. Every answer is trained exactly once, after exactly the ids that the sampler read.
A part that several trajectories share is one row and is trained once, where the rollout's shape lays it out so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drkernel.episode.records import Sampled, Trajectory, Turn
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
class TurnFacts:
    """The facts of one turn, or of a stretch of one where the rollout's shape makes rows of those, that travel with its
    tokens through an engine, as numbers."""

    start: int
    """First token of the answer, counted from the first one after the prompt."""
    end: int
    """The token after its last one."""
    graded: bool
    """Whether the turn has a grade."""
    reward: float = 0.0
    """0 without a grade."""
    correct: bool = False
    coverage: float = 0.0
    """Share of device time in own kernels, as the reward counts it; 0 where unknown."""
    launch_coverage: float = 0.0
    speedup: float = 0.0
    """0 where not timed."""
    turn: int = 0
    """Index of the turn, from 0."""
    node: int = -1
    """Its number among the rows of the prompt: trajectories that share a row repeat its facts. -1: shared by none."""
    parent: int = -1
    """Number of the row before it, -1 for none."""
    overlong: bool = False
    """Whether the answer was cut off."""

    @staticmethod
    def of(turn: Turn, start: int, end: int) -> TurnFacts:
        """Return the facts of a turn whose answer lies at these tokens."""
        graded = gradable(turn)
        return TurnFacts(
            start=start,
            end=end,
            graded=graded,
            reward=float(turn.reward or 0.0) if graded else 0.0,
            correct=turn.correct,
            coverage=known(turn.counted_coverage),
            launch_coverage=known(turn.launch_coverage),
            speedup=known(turn.speedup),
            turn=turn.number - 1,
            overlong=overlong(turn),
        )


@dataclass(frozen=True)
class Stretch:
    """The part of an answer that one row of a batch trains: the whole answer, or what a rollout's shape makes of it."""

    turn: Turn
    """The turn; the first of several that share the stretch"""
    owner: int
    """Index of the first trajectory that holds it."""
    start: int
    end: int
    """Half-open range of its tokens within the answer."""
    trains: bool
    """Whether it has a grade, or leads to a turn that has one."""
    parent: int | None = None
    """Row of the stretch before it, -1 at the beginning of a conversation; only where trajectories share rows."""

    @property
    def last(self) -> bool:
        """Whether the stretch ends its answer, so that it carries the reward."""
        return self.end == len(sampled_of(self.turn).token_ids)

    def facts(self, begin: int = 0, node: int = -1, parent: int = -1) -> TurnFacts:
        """Return the facts, where the answer begins at token ``begin``. What comes before the last stretch of an answer
        has no grade of its own: it earns by what follows."""
        facts = TurnFacts.of(self.turn, begin + self.start, begin + self.end)
        if not self.last:
            facts = TurnFacts(facts.start, facts.end, facts.graded, turn=facts.turn)
        return dataclasses.replace(facts, graded=self.trains, node=node, parent=parent)


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


Layout = Callable[[Sequence[Trajectory]], tuple[list[Stretch], list[TokenSequence]]]
"""From the trajectories of a batch to its rows and the sequences to run the model on, by trajectory and turn."""


def lay_out(
    trajectories: Sequence[Trajectory], begins: Callable[[Trajectory], int] = lambda trajectory: 0
) -> tuple[list[Stretch], list[TokenSequence]]:
    """Lay out one row for every turn of a trajectory's own; the first of them from the token that ``begins`` gives."""
    rows: list[Stretch] = []
    sequences: list[TokenSequence] = []
    for owner, trajectory in enumerate(trajectories):
        start = begins(trajectory)
        for turn in trajectory.turns[trajectory.own :]:
            rows.append(Stretch(turn, owner, start, len(sampled_of(turn).token_ids), gradable(turn)))
            append(sequences, rows, [len(rows) - 1])
            start = 0
    return rows, sequences


def append(sequences: list[TokenSequence], rows: Sequence[Stretch], new: Sequence[int]) -> None:
    """Append the ``new`` rows, stretches of one answer, to the trajectory's last sequence if their answer goes on from
    it, else as a new one."""
    first = rows[new[0]]
    drawn, begin = sampled_of(first.turn), len(sampled_of(first.turn).context_ids)
    ids = drawn.context_ids + drawn.token_ids
    added = TokenSequence(
        ids, first.owner, tuple(new), tuple((begin + rows[k].start, begin + rows[k].end) for k in new)
    )
    last = sequences[-1] if sequences else None
    if last is not None and last.owner == first.owner and drawn.context_ids[: len(last.ids)] == last.ids:
        sequences[-1] = TokenSequence(ids, first.owner, last.rows + added.rows, last.spans + added.spans)
    else:
        sequences.append(added)


def turn_batch(
    facts: Sequence[TurnFacts], groups: Sequence[int], owner_B: Tensor, parent_B: Tensor | None
) -> TurnBatch:
    """Return the inputs of advantages and rejections for rows with these facts."""

    def column(name: str) -> Tensor:
        return torch.tensor([float(getattr(fact, name)) for fact in facts])

    return TurnBatch(
        rewards_B=column("reward"),
        task_B=torch.tensor(groups, dtype=torch.int64),
        trajectory_B=owner_B,
        turn_B=torch.tensor([fact.turn for fact in facts], dtype=torch.int64),
        valid_B=torch.tensor([fact.graded for fact in facts], dtype=torch.bool),
        correct_B=column("correct").bool(),
        coverage_B=column("coverage"),
        launch_coverage_B=column("launch_coverage"),
        speedup_B=column("speedup"),
        overlong_B=column("overlong").bool(),
        parent_B=parent_B,
    )


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
    def of(trajectories: Sequence[Trajectory], layout: Layout = lay_out) -> Rows:
        """Build the rows, ordered by trajectory and turn."""
        stretches, sequences = layout(trajectories)
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
        parents = [part.parent for part in self.stretches if part.parent is not None]
        parent_B = torch.tensor(parents, dtype=torch.int64) if parents else None
        groups = [self.trajectories[part.owner].group for part in self.stretches]
        return turn_batch([part.facts() for part in self.stretches], groups, self.owner_B, parent_B)

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


class TurnRows:
    """The turns of a batch in the rows of an engine that keeps one row a trajectory, feedback among the answers: where
    they lie, and the way there and back.

    Shape legend: B trajectories, T tokens of a trajectory after its prompt, R turns of all trajectories, J tokens of
    the longest turn, pushed to the left.
    """

    def __init__(self, trajectories: Sequence[Sequence[TurnFacts]], groups: Sequence[int], length: int):
        """``groups`` says which trajectories have the same prompt; ``length`` is T.

        What trajectories share is one row, and lies in the first of them.
        """
        self.facts: list[TurnFacts] = []
        self.groups = groups
        self.size, self.length = len(trajectories), length
        places: dict[tuple[int, int, int], int] = {}
        owners, parents = [], []
        for b, turns in enumerate(trajectories):
            for t, fact in enumerate(turns):
                place = (groups[b], -1, fact.node) if fact.node >= 0 else (groups[b], b, t)
                if place not in places:
                    places[place] = len(self.facts)
                    self.facts.append(fact)
                    owners.append(b)
                    parents.append(places[groups[b], -1, fact.parent] if fact.parent >= 0 else -1)
        shared = any(fact.node >= 0 for fact in self.facts)
        self.parent_R = torch.tensor(parents, dtype=torch.int64) if shared else None
        self.owner_R = torch.tensor(owners, dtype=torch.int64)
        start_R = torch.tensor([fact.start for fact in self.facts], dtype=torch.int64)
        length_R = torch.tensor([fact.end - fact.start for fact in self.facts], dtype=torch.int64)
        step_J = torch.arange(int(length_R.max()) if len(places) else 0)
        self.inside_RJ = step_J[None, :] < length_R[:, None]
        self.at_RJ = (start_R[:, None] + step_J[None, :]).clamp_max(max(0, length - 1))

    def take(self, values_BT: Tensor) -> Tensor:
        """Return the values of the turns' own tokens, [R, J], 0 after a turn's end."""
        return values_BT[self.owner_R].gather(1, self.at_RJ).masked_fill(~self.inside_RJ, 0)

    def put_back(self, values_RJ: Tensor) -> Tensor:
        """Return values of turns in the engine's layout, [B, T], 0 outside of answers."""
        kept_RJ = torch.where(self.inside_RJ, values_RJ, torch.zeros_like(values_RJ))
        wide_RT = values_RJ.new_zeros(len(self.facts), self.length).scatter_add_(1, self.at_RJ, kept_RJ)
        return values_RJ.new_zeros(self.size, self.length).index_add_(0, self.owner_R, wide_RT)

    def batch(self, old_BT: Tensor | None = None, square_BT: Tensor | None = None) -> TurnBatch:
        """Return the inputs of our methods; ``old_BT`` are the trainer's log-probabilities, ``square_BT`` their Σπ².
        A method that needs what is not given says so."""
        batch = turn_batch(self.facts, [self.groups[b] for b in self.owner_R.tolist()], self.owner_R, self.parent_R)
        return dataclasses.replace(
            batch,
            logprobs_BT=None if old_BT is None else self.take(old_BT),
            sum_pi_squared_BT=None if square_BT is None else self.take(square_BT),
            mask_BT=self.inside_RJ & batch.valid_B[:, None],
        )
