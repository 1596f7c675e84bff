"""Converts trajectories to tensors: one row per turn, and the id sequences that the model is run on. :class:`Rows` is
of our own trainer, :class:`TurnRows` of engines that keep one row a trajectory; both make the same batch of them.

Turns that only append to each other share a sequence: with the whole history in the context, a trajectory is one
sequence in which every turn's answer is trained. When a context policy leaves turns out, a new sequence starts with
that turn's own context and answer. Every answer is trained exactly once, after exactly the ids that the sampler read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
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
    """The facts of one turn that travel with its tokens through an engine, as numbers."""

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


def facts_of(trajectory: Trajectory) -> list[TurnFacts]:
    """Return the facts of each turn, for engines that keep one row a trajectory."""
    starts = [len(sampled_of(turn).context_ids) for turn in trajectory.turns]
    spans = [(start - starts[0], turn) for start, turn in zip(starts, trajectory.turns, strict=True)]
    return [TurnFacts.of(turn, start, start + turn.tokens) for start, turn in spans]


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


def _sequences(trajectories: Sequence[Trajectory]) -> list[TokenSequence]:
    """Return the sequences to run the model on, by trajectory and turn."""
    found: list[TokenSequence] = []
    row = 0
    for owner, trajectory in enumerate(trajectories):
        for turn in trajectory.turns:
            drawn = sampled_of(turn)
            ids = drawn.context_ids + drawn.token_ids
            span = (len(drawn.context_ids), len(ids))
            last = found[-1] if found else None
            if last is not None and last.owner == owner and drawn.context_ids[: len(last.ids)] == last.ids:
                found[-1] = TokenSequence(ids, owner, (*last.rows, row), (*last.spans, span))
            else:
                found.append(TokenSequence(ids, owner, (row,), (span,)))
            row += 1
    return found


def turn_batch(facts: Sequence[TurnFacts], groups: Sequence[int], owner_B: Tensor) -> TurnBatch:
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
    )


@dataclass(frozen=True)
class Rows:
    """The turns of a batch of trajectories as padded tensors, one row a turn."""

    trajectories: tuple[Trajectory, ...]
    turns: tuple[Turn, ...]
    """the turn of each row, ordered by trajectory and turn"""
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
        turns = [(owner, turn) for owner, trajectory in enumerate(trajectories) for turn in trajectory.turns]
        width = max((len(sampled_of(turn).token_ids) for _, turn in turns), default=0)
        mask_BT = torch.zeros(len(turns), width, dtype=torch.bool)
        rollout_BT = torch.zeros(len(turns), width)
        for row, (_, turn) in enumerate(turns):
            where = slice(0, len(sampled_of(turn).token_ids))
            mask_BT[row, where] = gradable(turn)
            rollout_BT[row, where] = torch.tensor(sampled_of(turn).logprobs)
        owner_B = torch.tensor([owner for owner, _ in turns], dtype=torch.int64)
        sequences = tuple(_sequences(trajectories))
        return Rows(tuple(trajectories), tuple(turn for _, turn in turns), sequences, owner_B, mask_BT, rollout_BT)

    def batch(self) -> TurnBatch:
        """Return the inputs of advantages and rejections."""
        groups = [self.trajectories[owner].group for owner in self.owner_B.tolist()]
        facts = [TurnFacts.of(turn, 0, len(sampled_of(turn).token_ids)) for turn in self.turns]
        return turn_batch(facts, groups, self.owner_B)

    def graded(self) -> list[int]:
        """Indices of sequences with at least one graded turn; the others need no computation."""
        return [index for index, sequence in enumerate(self.sequences) if any(map(self._trains, sequence.rows))]

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


class TurnRows:
    """The turns of a batch in the rows of an engine that keeps one row a trajectory, feedback among the answers: where
    they lie, and the way there and back.

    Shape legend: B trajectories, T tokens of a trajectory after its prompt, R turns of all trajectories, J tokens of
    the longest turn, pushed to the left.
    """

    def __init__(self, trajectories: Sequence[Sequence[TurnFacts]], groups: Sequence[int], length: int):
        """``groups`` says which trajectories have the same prompt; ``length`` is T."""
        self.facts = [fact for turns in trajectories for fact in turns]
        self.groups = groups
        self.size, self.length = len(trajectories), length
        owners = [b for b, turns in enumerate(trajectories) for _ in turns]
        self.owner_R = torch.tensor(owners, dtype=torch.int64)
        start_R = torch.tensor([fact.start for fact in self.facts], dtype=torch.int64)
        length_R = torch.tensor([fact.end - fact.start for fact in self.facts], dtype=torch.int64)
        step_J = torch.arange(int(length_R.max()) if self.facts else 0)
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
        batch = turn_batch(self.facts, [self.groups[b] for b in self.owner_R.tolist()], self.owner_R)
        return dataclasses.replace(
            batch,
            logprobs_BT=None if old_BT is None else self.take(old_BT),
            sum_pi_squared_BT=None if square_BT is None else self.take(square_BT),
            mask_BT=self.inside_RJ & batch.valid_B[:, None],
        )
