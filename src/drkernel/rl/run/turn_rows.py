"""The batch of an engine that keeps one row a trajectory, as the turns that our methods compare.

Such engines hold the answers and the judge's feedback one after the other. Our methods take one row a turn, every
turn's tokens pushed to the left. This file goes there and back.

Shape legend: B trajectories, T tokens of a trajectory after its prompt, R turns of all trajectories, J tokens of the
longest turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drkernel.episode.records import Turn
from drkernel.rl.run.registry import TurnBatch
from drkernel.rl.run.rows import gradable, known, overlong


@dataclass(frozen=True)
class Facts:
    """The facts of one turn, or of a stretch of one where the rollout's shape makes rows of those, that travel with its
    tokens through an engine, as numbers."""

    start: int
    """First token of the answer, counted from the first one after the prompt."""
    end: int
    """The token after its last one."""
    graded: bool
    """Whether the turn has a grade."""
    reward: float
    """0 without a grade."""
    correct: bool
    coverage: float
    """Share of device time in own kernels, as the reward counts it; 0 where unknown."""
    launch_coverage: float
    speedup: float
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
    def of(turn: Turn, start: int, end: int) -> Facts:
        """Return the facts of a turn whose answer lies at these tokens."""
        graded = gradable(turn)
        return Facts(
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


class TurnRows:
    """Where the turns of a batch lie in an engine's rows, and the way between the two layouts."""

    def __init__(self, trajectories: Sequence[Sequence[Facts]], groups: Sequence[int], length: int):
        """``groups`` says which trajectories have the same prompt; ``length`` is T.

        What trajectories share is one row, and lies in the first of them.
        """
        self.facts: list[Facts] = []
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
        self.turn_R = torch.tensor([fact.turn for fact in self.facts], dtype=torch.int64)
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
        graded_R = torch.tensor([fact.graded for fact in self.facts], dtype=torch.bool)

        def column(name: str) -> Tensor:
            return torch.tensor([float(getattr(fact, name)) for fact in self.facts])

        return TurnBatch(
            rewards_B=column("reward"),
            task_B=torch.tensor([self.groups[b] for b in self.owner_R.tolist()], dtype=torch.int64),
            trajectory_B=self.owner_R,
            turn_B=self.turn_R,
            valid_B=graded_R,
            correct_B=column("correct").bool(),
            coverage_B=column("coverage"),
            launch_coverage_B=column("launch_coverage"),
            speedup_B=column("speedup"),
            overlong_B=column("overlong").bool(),
            logprobs_BT=None if old_BT is None else self.take(old_BT),
            sum_pi_squared_BT=None if square_BT is None else self.take(square_BT),
            mask_BT=self.inside_RJ & graded_R[:, None],
            parent_B=self.parent_R,
        )
