"""The shape ``tree`` of a rollout, and the advantages that know trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from contrib.trees import maths
from contrib.trees.forks import TreeConfig
from contrib.trees.rollout import TreeRollout
from contrib.trees.rows import TreeBatch, Weights, forest_of, lay_out_paths, path_facts
from drkernel.config import ConfigError
from drkernel.episode.episode import Episode
from drkernel.episode.records import Trajectory
from drkernel.rl.maths.advantages import Alone
from drkernel.rl.model.answerer import SamplerAnswerer
from drkernel.rl.run.learner import LearnerConfig
from drkernel.rl.run.registry import TurnBatch, advantage
from drkernel.rl.run.rollout import Shape, shapes
from drkernel.rl.run.rows import Stretch, TokenSequence, TurnFacts

WHOLE_TRAJECTORIES = ("trloo_best", "rloo", "rloo_total", "kevin", "otb", "otb_loo", "otb_tir", "otb_tir_loo")
"""Advantages whose baselines go by trajectory, so that trees have none."""


@shapes.register("tree")
class TreeShape(TreeConfig, Shape):
    """A tree of turns for each prompt: what its paths share is sampled, graded and trained once."""

    plays_on: ClassVar[tuple[str, ...]] = ("local", "verl")
    together: ClassVar[bool] = True

    weights: Weights = Field("paths", description="of what paths share, in the loss")

    def answers(self, samples: int, turns: int) -> int:
        """Return how many answers a prompt has graded; an upper bound when paths fork within answers."""
        return self.turns(turns)

    def trajectories(self, samples: int, turns: int) -> int:
        """Return the paths of a prompt."""
        return self.width

    def check(self, learner: LearnerConfig) -> None:
        """Raise :class:`ConfigError` for methods that compare whole trajectories."""
        if (name := learner.advantage.name) in WHOLE_TRAJECTORIES:
            raise ConfigError(
                f"rollout.shape tree: the advantage {name!r} compares whole trajectories, and the paths of a tree "
                "share turns; choose treepo_loo, treepo, trloo, grpo, grpo_std or reinforce"
            )
        if learner.mask_void_turns:
            raise ConfigError("rollout.shape tree: rl.learner.mask_void_turns needs trajectories that share nothing")

    def rollout(self, answerer: SamplerAnswerer, make_episode: Callable[[], Episode], **terms: Any) -> TreeRollout:
        """Return the rollout that grows the trees."""
        return TreeRollout(answerer, make_episode, self, **terms)

    def lay_out(self, trajectories: Sequence[Trajectory]) -> tuple[list[Stretch], list[TokenSequence]]:
        """Return one row for each turn, or stretch of one, that no fork divides."""
        return lay_out_paths(trajectories)

    def batch(self, batch: TurnBatch, trajectories: Sequence[Trajectory] = ()) -> TreeBatch:
        """Return the batch as one of trees."""
        return TreeBatch.of(batch, self.weights)

    def facts(self, trajectories: Sequence[Trajectory]) -> list[list[TurnFacts]]:
        """Return the facts of each path of one tree."""
        return path_facts(trajectories)


@advantage.register("treepo")
def _treepo(batch: TurnBatch, *, gamma: float = 1.0, std: bool = False) -> Tensor:
    return maths.treepo(batch.rewards_B, forest_of(batch), gamma=gamma, std=std)


@advantage.register("treepo_loo")
def _treepo_loo(
    batch: TurnBatch, *, gamma: float = 1.0, subgroups: maths.Subgroups = "all", alone: Alone = "return"
) -> Tensor:
    forest = forest_of(batch)
    return maths.treepo_loo(forest.returns(batch.rewards_B, gamma), forest, subgroups=subgroups, alone=alone)
