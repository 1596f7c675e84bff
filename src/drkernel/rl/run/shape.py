"""The shape of a rollout, by name (``rollout.shape``): how the trajectories of a prompt come about, and what of them is
a row of the batch.

A plug-in registers a subclass of :class:`Shape` under a name of its own; contrib/trees is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from drkernel.config import Config
from drkernel.episode.episode import Episode
from drkernel.episode.records import Trajectory
from drkernel.registry import Method, Registry
from drkernel.rl.model.answerer import SamplerAnswerer
from drkernel.rl.run.registry import TurnBatch
from drkernel.rl.run.rollout import Rollout
from drkernel.rl.run.rows import Stretch, TokenSequence, TurnFacts, lay_out

if TYPE_CHECKING:
    from drkernel.rl.run.learner import LearnerConfig

shapes: Registry[Callable[..., Shape]] = Registry("rollout shape", makers=True)


@shapes.register("trajectories")
class Shape(Config):
    """Separate trajectories, ``rollout.samples`` of each prompt. What a subclass leaves alone is as here."""

    plays_on: ClassVar[tuple[str, ...]] = ("local", "served", "verl")
    """Who can sample it: our own sampler, a server (``rollout.backend``), the engine verl (needs :meth:`facts`)"""
    together: ClassVar[bool] = False
    """Whether one job plays all trajectories of its prompt."""

    def jobs(self, samples: int) -> int:
        """Return the jobs of a prompt."""
        return 1 if self.together else samples

    def answers(self, samples: int, turns: int) -> int:
        """Return how many answers a prompt has graded, at most."""
        return samples * turns

    def trajectories(self, samples: int, turns: int) -> int:
        """Return how many trajectories a prompt gives, at most."""
        return self.answers(samples, turns) // turns

    def check(self, learner: LearnerConfig) -> None:
        """Raise :class:`~drkernel.config.ConfigError` for methods that cannot take such trajectories."""

    def rollout(self, answerer: SamplerAnswerer, make_episode: Callable[[], Episode], **terms: Any) -> Rollout:
        """Return the rollout that plays it."""
        return Rollout(answerer, make_episode, **terms)

    def lay_out(self, trajectories: Sequence[Trajectory]) -> tuple[list[Stretch], list[TokenSequence]]:
        """Return the rows of a batch, and the sequences to run the model on."""
        return lay_out(trajectories)

    def batch(self, batch: TurnBatch, trajectories: Sequence[Trajectory] = ()) -> TurnBatch:
        """Return the batch as advantages take it: the class decides about returns, groups and weights.

        On verl there are no ``trajectories``: what it needs of them travels in :meth:`facts`."""
        del trajectories
        return batch

    def facts(self, trajectories: Sequence[Trajectory]) -> list[list[TurnFacts]]:
        """Return the facts of each trajectory of one prompt, for engines that keep one row a trajectory; only asked of
        shapes that play them together."""
        raise NotImplementedError


def make_shape(method: Method) -> Shape:
    """Build the shape of a config. Raises :class:`ConfigError` for an unknown name or option, or an invalid value."""
    shape: Shape = shapes.make("rollout.shape", method)
    return shape
