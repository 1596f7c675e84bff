"""The reward of one turn: a pure function of the verdict.

R = w_c + w_s * clip(speedup) + w_p * coverage when the verdict is ``correct``, else a penalty. The clip counts a ratio
above ``speedup_max`` as ``speedup_max`` and one below ``speedup_min`` as 0; by default there is no lower bound, as in
the paper and the full recipe of *Dr. Kernel* (arXiv 2602.05885), whose terms and weights these are.
``infra_error`` and ``invalid_request`` have no reward: they are masked, never scored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field, model_validator

from drkernel.config import Config
from drkernel.registry import Registry
from drkernel.verdict import Verdict


class RewardConfig(Config):
    """Which reward, and the weights and bounds of its terms."""

    name: str = Field("weighted", description="'weighted', or a reward that a plug-in registered")
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of a plug-in's reward")
    correct_weight: float = Field(0.5, ge=0, description="w_c: for a correct answer")
    speedup_weight: float = Field(0.5, ge=0, description="w_s: times the clipped speedup")
    coverage_weight: float = Field(0.5, ge=0, description="w_p: times T_custom / T_total (PR)")
    speedup_min: float = Field(0.0, ge=0, description="a speedup below this counts as 0; 0.0 as in the full recipe")
    speedup_max: float = Field(3.0, gt=0, description="a speedup above this counts as this")
    speedup_from: Literal["value", "low"] = Field(
        "value", description="'low' takes the lower end of the interval: noise cannot earn reward"
    )
    coverage_from: Literal["candidate", "replaced"] = Field(
        "candidate",
        description="what PR and PRS count: 'candidate' the verdict's coverage as it is (the paper's Eq. 7); "
        "'replaced' no more than the share of the reference's device time that PyTorch no longer spends: an own kernel "
        "that wastes time cannot raise it",
    )
    penalty: float = Field(0.0, le=0, description="reward of an answer that is wrong or does not run")
    hack_penalty: float | None = Field(None, le=0, description="reward of a condemned answer; None means `penalty`")
    unsupported_penalty: float | None = Field(
        None,
        le=0,
        description="reward of an answer in a language that the device cannot run; None means `penalty`. It is never "
        "masked, so that a policy cannot hide there",
    )

    @model_validator(mode="after")
    def _ordered(self) -> RewardConfig:
        if self.speedup_min > self.speedup_max:
            raise ValueError(f"speedup_min {self.speedup_min} is above speedup_max {self.speedup_max}")
        return self


class Reward(Config):
    """One turn's reward and its parts: ``total`` is their sum, or None when the turn must be masked."""

    total: float | None = Field(description="the reward; None where the verdict says nothing of the answer")
    correctness: float = Field(0.0, description="w_c for a correct answer")
    speedup: float = Field(0.0, description="w_s * clipped speedup")
    coverage: float = Field(0.0, description="w_p * coverage")
    penalty: float = Field(0.0, description="what a wrong or condemned answer costs")
    counted_coverage: float | None = Field(
        None, description="the coverage that earns, before its weight, in [0, 1]; what PRS rejects by"
    )

    @property
    def masked(self) -> bool:
        """Whether this turn must leave the loss and every baseline."""
        return self.total is None


def clip_speedup(speedup: float, config: RewardConfig) -> float:
    """Return the speedup that counts: 0 below ``speedup_min``, ``speedup_max`` above it."""
    if speedup < config.speedup_min:
        return 0.0
    return min(speedup, config.speedup_max)


def counted_coverage(verdict: Verdict, config: RewardConfig) -> float:
    """Return the coverage that counts, in [0, 1]: the verdict's, or less under ``coverage_from="replaced"``."""
    coverage = min(1.0, verdict.coverage or 0.0)
    if config.coverage_from == "candidate" or verdict.profile is None or verdict.reference_profile is None:
        return coverage
    left = sum(row.seconds for row in verdict.profile.rows if row.owner != "custom")
    whole = verdict.reference_profile.total_seconds
    return max(0.0, min(coverage, 1.0 - left / whole)) if whole > 0 else coverage


rewards: Registry[Callable[..., Reward]] = Registry("reward")
"""``f(verdict, config, **options) -> Reward``; asked for every verdict but infra errors, which have no reward."""


def reward(verdict: Verdict, config: RewardConfig = RewardConfig()) -> Reward:
    """Return the reward of ``verdict`` under ``config``, by the function that ``config.name`` names."""
    if not verdict.is_of_candidate:
        return Reward(total=None)
    return rewards.get(config.name)(verdict, config, **config.options)


def check_reward(config: RewardConfig) -> None:
    """Raise :class:`~drkernel.config.ConfigError` for a reward or an option that does not exist."""
    rewards.check("episode.reward", config.name, config.options)


@rewards.register("weighted")
def _weighted(verdict: Verdict, config: RewardConfig) -> Reward:
    """Return the weighted sum. An unknown speedup or coverage earns 0."""
    if verdict.status != "correct":
        special = {"hack": config.hack_penalty, "unsupported": config.unsupported_penalty}.get(verdict.status)
        penalty = config.penalty if special is None else special
        return Reward(total=penalty, penalty=penalty)
    ratio = 0.0 if verdict.speedup is None else getattr(verdict.speedup, config.speedup_from)
    speedup = config.speedup_weight * clip_speedup(ratio, config)
    counted = counted_coverage(verdict, config)
    coverage = config.coverage_weight * counted
    total = config.correct_weight + speedup + coverage
    return Reward(
        total=total,
        correctness=config.correct_weight,
        speedup=speedup,
        coverage=coverage,
        counted_coverage=counted,
    )
