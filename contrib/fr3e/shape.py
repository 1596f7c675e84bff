"""The shape ``anchors`` of a rollout, and the advantage ``fr3e``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from contrib.fr3e import maths
from contrib.fr3e.rollout import AnchorConfig, AnchorRollout, Origin, Partial
from drkernel.config import ConfigError
from drkernel.episode.episode import Episode
from drkernel.episode.records import Trajectory
from drkernel.rl.model.answerer import SamplerAnswerer
from drkernel.rl.run.learner import LearnerConfig
from drkernel.rl.run.registry import TurnBatch, advantage
from drkernel.rl.run.rollout import Shape, shapes
from drkernel.rl.run.rows import Stretch, TokenSequence, lay_out


@dataclass(frozen=True)
class StateBatch(TurnBatch):
    """A batch of partial rollouts."""

    state_B: Tensor | None = None
    """Place that the row's partial rollout went on from, unique over the batch."""
    before_B: Tensor | None = None
    """Place before that one on the same base rollout, -1 for the task itself."""


@shapes.register("anchors")
class AnchorShape(AnchorConfig, Shape):
    """Partial rollouts from the least certain places of a few answers; needs the advantage fr3e."""

    plays_on: ClassVar[tuple[str, ...]] = ("local",)
    together: ClassVar[bool] = True

    def answers(self, samples: int, turns: int) -> int:
        """Return how many answers a prompt has graded, at most."""
        return self.turns(turns)

    def check(self, learner: LearnerConfig) -> None:
        """Raise :class:`ConfigError` for another advantage."""
        if learner.advantage.name != "fr3e":
            raise ConfigError("rollout.shape anchors: needs rl.learner.advantage fr3e")

    def rollout(self, answerer: SamplerAnswerer, make_episode: Callable[[], Episode], **terms: Any) -> AnchorRollout:
        """Return the rollout that plays base rollouts and partial ones."""
        return AnchorRollout(answerer, make_episode, self, **terms)

    def lay_out(self, trajectories: Sequence[Trajectory]) -> tuple[list[Stretch], list[TokenSequence]]:
        """Return one row for each turn; the first of a rollout's own from its origin on."""
        return lay_out(trajectories, begins=lambda trajectory: origin_of(trajectory).token)

    def batch(self, batch: TurnBatch, trajectories: Sequence[Trajectory] = ()) -> StateBatch:
        """Return the batch with the states of its rows."""
        columns = {part.name: getattr(batch, part.name) for part in dataclasses.fields(TurnBatch)}
        state_B, before_B = states(trajectories, batch.trajectory_B)
        return StateBatch(**columns, state_B=state_B, before_B=before_B)


def origin_of(trajectory: Trajectory) -> Origin:
    """Return where a partial rollout begins."""
    assert isinstance(trajectory, Partial)
    return trajectory.origin


def states(trajectories: Sequence[Trajectory], owner_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the state that each row's trajectory started from, and the state before that one; -1 for none."""
    origins = [origin_of(trajectory) for trajectory in trajectories]
    places = [
        (trajectory.group, origin.base if origin.order else -1, origin.order)
        for trajectory, origin in zip(trajectories, origins, strict=True)
    ]  # the task itself belongs to no base rollout
    number = {place: index for index, place in enumerate(sorted(set(places)))}

    def before(place: tuple[int, int, int]) -> int:
        group, base, order = place
        earlier = [k for g, b, k in number if (g, b) == (group, base) and k < order]
        return number.get((group, base, max(earlier)) if earlier else (group, -1, 0), -1) if order else -1

    owners = owner_B.tolist()
    return (
        torch.tensor([number[places[i]] for i in owners], dtype=torch.int64),
        torch.tensor([before(places[i]) for i in owners], dtype=torch.int64),
    )


@advantage.register("fr3e")
def _fr3e(
    batch: TurnBatch,
    *,
    gamma: float = 1.0,
    modulation: maths.Modulation = "code",
    leave_one_out: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> Tensor:
    state_B, before_B = batch.need("state_B", "before_B")
    options: dict[str, Any] = {"modulation": modulation, "leave_one_out": leave_one_out, "low": low, "high": high}
    rows = (state_B, before_B, batch.task_B, batch.trajectory_B, batch.turn_B, batch.valid_B)
    return maths.fr3e(batch.returns(gamma), *rows, **options)
