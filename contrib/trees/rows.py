"""Trees as rows of a batch: what paths share is one row, in our layout and in that of engines with a row a path."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from contrib.trees.maths import Forest, leaf_weights, mean_one, path_weights
from contrib.trees.rollout import InPieces
from drkernel.episode.records import Trajectory, Turn
from drkernel.rl.maths.advantages import group_ids
from drkernel.rl.run.registry import TurnBatch
from drkernel.rl.run.rows import Stretch, TokenSequence, TurnFacts, append, gradable, sampled_of

Weights = Literal["paths", "leaves", "equal"]
"""How much a turn that paths share weighs in the loss: its chance on a walk that takes every branch alike (unbiased),
the paths through it (TreePO), or 1."""


@dataclass(frozen=True)
class TreeBatch(TurnBatch):
    """A batch of trees: ``parent_B`` says where its rows hang."""

    node_weights: Weights = "paths"

    @staticmethod
    def of(batch: TurnBatch, node_weights: Weights = "paths") -> TreeBatch:
        """Return the batch as one of trees."""
        columns = {part.name: getattr(batch, part.name) for part in dataclasses.fields(TurnBatch)}
        return TreeBatch(**columns, node_weights=node_weights)

    def returns(self, gamma: float = 1.0) -> Tensor:
        """Reward-to-go of every turn, over the mean of what follows, [B]."""
        return forest_of(self).returns(self.rewards_B, gamma)

    def totals(self, gamma: float = 1.0) -> Tensor:
        """Raise ValueError: no trajectory has the total."""
        raise ValueError("the turns of a tree belong to several trajectories: none of them has the total")

    def best_returns(self) -> Tensor:
        """Raise ValueError: the turns lie on several paths."""
        raise ValueError("the turns of a tree lie on several paths: none of them has the best that came after")

    def groups(self) -> Tensor:
        """Group of each row for turn-level baselines: same task, same depth."""
        return group_ids(self.task_B, forest_of(self).depth_B)

    def whole(self) -> Tensor:
        """Return bool [B]: on a path from the task to a last turn whose turns are all valid."""
        return forest_of(self).whole_B

    def weights(self) -> Tensor:
        """Return how much each row counts in the loss, float64 [B], 1 on the average."""
        if self.node_weights == "equal":
            return self.valid_B.double()
        forest = forest_of(self)
        weights_B = path_weights(forest) if self.node_weights == "paths" else leaf_weights(forest)
        return mean_one(weights_B, self.valid_B)


def forest_of(batch: TurnBatch) -> Forest:
    """Return the trees of a batch; trajectories that share nothing are chains."""
    if batch.parent_B is not None:
        return Forest(batch.parent_B, batch.task_B, batch.turn_B, batch.valid_B.bool())
    order = torch.argsort(batch.turn_B, stable=True)
    order = order[torch.argsort(batch.trajectory_B[order], stable=True)]
    same = batch.trajectory_B[order[1:]] == batch.trajectory_B[order[:-1]]
    parent_B = torch.full_like(batch.trajectory_B, -1)
    parent_B[order[1:][same]] = order[:-1][same]
    return Forest(parent_B, batch.task_B, batch.turn_B, batch.valid_B.bool())


class _Pieces:
    """Finds the answers of a tree that share pieces, and hence where their stretches end."""

    def __init__(self, paths: Sequence[Trajectory]):
        self.after: dict[tuple[int, int], set[int]] = {}
        self.first: dict[tuple[int, int], str] = {}
        self.graded: set[tuple[int, int]] = set()
        for path in paths:
            for turn in path.turns:
                names = [(path.group, name) for name, _ in pieces_of(turn)]
                for name, following in itertools.pairwise(names):
                    self.after.setdefault(name, set()).add(following[1])
                for name in names:
                    self.first.setdefault(name, turn.id)
                    if gradable(turn):
                        self.graded.add(name)

    def stretches(self, group: int, turn: Turn) -> list[tuple[int, str, bool]]:
        """Return, for a turn's stretches in order: where each ends, the first turn that holds it, and whether it
        trains."""
        found = [
            (end, self.first[group, name], (group, name) in self.graded)
            for name, end in pieces_of(turn)[:-1]
            if len(self.after[group, name]) > 1
        ]
        return [*found, (len(sampled_of(turn).token_ids), turn.id, gradable(turn))]


def pieces_of(turn: Turn) -> tuple[tuple[int, int], ...]:
    """Return the pieces that a turn's answer was drawn in."""
    drawn = sampled_of(turn)
    assert isinstance(drawn, InPieces)
    return drawn.pieces


def lay_out_paths(paths: Sequence[Trajectory]) -> tuple[list[Stretch], list[TokenSequence]]:
    """Lay out the rows of a batch of trees; a part that paths share is trained in the sequence of the first of them."""
    pieces = _Pieces(paths)
    rows: list[Stretch] = []
    placed: dict[tuple[int, str, int], int] = {}  # group, first turn that holds the stretch, number within the turn
    sequences: list[TokenSequence] = []
    for owner, path in enumerate(paths):
        before = -1
        for turn in path.turns:
            start, new = 0, []
            for number, (end, first, trains) in enumerate(pieces.stretches(path.group, turn)):
                row = placed.setdefault((path.group, first, number), len(rows))
                if row == len(rows):
                    rows.append(Stretch(turn, owner, start, end, trains, before))
                    new.append(row)
                before, start = row, end
            if new:
                append(sequences, rows, new)
    return rows, sequences


def path_facts(paths: Sequence[Trajectory]) -> list[list[TurnFacts]]:
    """Return the facts of each path of one tree, shared ones repeated, their tokens counted from the first one after
    the prompt."""
    stretches, _ = lay_out_paths(paths)
    ends = {part.turn.id: row for row, part in enumerate(stretches) if part.last}
    found = []
    for path in paths:
        prompt = len(sampled_of(path.turns[0]).context_ids)
        row, facts = ends[path.turns[-1].id], list[TurnFacts]()
        while row >= 0:
            part = stretches[row]
            begin = len(sampled_of(part.turn).context_ids) - prompt
            facts.append(part.facts(begin, node=row, parent=_parent(part)))
            row = _parent(stretches[row])
        found.append(facts[::-1])
    return found


def _parent(part: Stretch) -> int:
    assert part.parent is not None
    return part.parent
