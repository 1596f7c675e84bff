"""The reward of one turn: a pure function of the verdict.

R = w_c + w_s * clip(speedup) + w_p * coverage when the verdict is ``correct``, else a penalty. The clip counts a ratio
above ``speedup_max`` as ``speedup_max`` and one below ``speedup_min`` as 0; by default there is no lower bound, as in
the paper and the full recipe of *Dr. Kernel* (arXiv 2602.05885), whose terms and weights these are.
``infra_error`` and ``invalid_request`` have no reward: they are masked, never scored. Other rewards go by other names
(``RewardConfig.name``): ``log_speedup``, ``milestones``, ``ladder``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field, model_validator

from drkernel.config import Config, ConfigError
from drkernel.registry import Registry
from drkernel.verdict import Verdict


class RewardConfig(Config):
    """Which reward, and the weights and bounds of its terms."""

    name: str = Field(
        "weighted", description="'weighted', 'log_speedup', 'milestones', 'ladder', or what a plug-in registered"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of that reward")
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
    earned = rewards.get(config.name)(verdict, config, **config.options)
    if not isinstance(earned, Reward):
        raise ConfigError(f"episode.reward: {config.name} returned {type(earned).__name__}, not a Reward")
    return earned


def check_reward(config: RewardConfig) -> None:
    """Raise :class:`~drkernel.config.ConfigError` for a reward or an option that does not exist."""
    rewards.check("episode.reward", config.name, config.options)


@rewards.register("weighted")
def _weighted(verdict: Verdict, config: RewardConfig) -> Reward:
    """Return the weighted sum. An unknown speedup or coverage earns 0."""
    if verdict.status != "correct":
        return _penalised(verdict, config)
    ratio = _ratio(verdict, config)
    return _earned(verdict, config, config.speedup_weight * clip_speedup(ratio or 0.0, config))


@rewards.register("log_speedup")
def _log_speedup(verdict: Verdict, config: RewardConfig, *, floor: float = 0.5) -> Reward:
    """Return the weighted sum with log2 of the speedup, from ``floor`` to ``speedup_max``, in its place: twice as fast
    earns what half as fast costs. An unknown speedup earns 0."""
    if verdict.status != "correct":
        return _penalised(verdict, config)
    ratio = _ratio(verdict, config)
    speedup = 0.0 if ratio is None else math.log2(min(max(ratio, floor), config.speedup_max))
    return _earned(verdict, config, config.speedup_weight * speedup)


@rewards.register("milestones")
def _milestones(verdict: Verdict, config: RewardConfig, *, margin: float = 0.05, wrong: float = -1.0) -> Reward:
    """Return CUDA Agent's discrete reward (arXiv 2602.24286, recalled): -1 for what is wrong, 1 for what is right, 2
    where it takes over 5% less time than eager PyTorch, 3 where it takes that much less than ``torch.compile``.

    A verdict has one baseline: against eager the highest is 2, against ``torch.compile`` there is no 2.
    """
    if verdict.status != "correct":
        return Reward(total=wrong, penalty=wrong)
    ratio = _ratio(verdict, config)
    faster = ratio is not None and ratio > 0 and 1 - 1 / ratio > margin
    speedup = (2.0 if verdict.baseline == "compile" else 1.0) if faster else 0.0
    return _earned(verdict, config.model_copy(update={"correct_weight": 1.0, "coverage_weight": 0.0}), speedup)


RUNGS = ((3.0, 1.0), (2.0, 0.8), (1.5, 0.6), (1.2, 0.4), (1.0, 0.2))
"""KernelGYM's ladder: from this speedup on, this reward"""


@rewards.register("ladder")
def _ladder(verdict: Verdict, config: RewardConfig) -> Reward:
    """Return KernelGYM's first reward (``calculate_reward_like_kernel``): 1.0 from 3x on, 0.8 from 2x, 0.6 from 1.5x,
    0.4 from 1.2x, 0.2 from 1x, -0.1 for slower, -0.3 for wrong, -0.5 for what does not compile, else -1."""
    if verdict.status != "correct":
        failed = {"compile_error": -0.5, "unsupported": -0.5, "incorrect": -0.3, "runtime_error": -0.3}
        penalty = failed.get(verdict.status, -1.0)
        return Reward(total=penalty, penalty=penalty)
    ratio = _ratio(verdict, config) or 0.0
    speedup = next((reward for bound, reward in RUNGS if ratio >= bound), -0.1)
    return _earned(verdict, config.model_copy(update={"correct_weight": 0.0, "coverage_weight": 0.0}), speedup)


def _ratio(verdict: Verdict, config: RewardConfig) -> float | None:
    """Return the speedup, or the lower end of its interval; None where it is not known."""
    return None if verdict.speedup is None else getattr(verdict.speedup, config.speedup_from)


def _penalised(verdict: Verdict, config: RewardConfig) -> Reward:
    special = {"hack": config.hack_penalty, "unsupported": config.unsupported_penalty}.get(verdict.status)
    penalty = config.penalty if special is None else special
    return Reward(total=penalty, penalty=penalty)


def _earned(verdict: Verdict, config: RewardConfig, speedup: float) -> Reward:
    """Return the reward of a correct answer whose speed earns ``speedup``."""
    counted = counted_coverage(verdict, config)
    coverage = config.coverage_weight * counted
    return Reward(
        total=config.correct_weight + speedup + coverage,
        correctness=config.correct_weight,
        speedup=speedup,
        coverage=coverage,
        counted_coverage=counted,
    )
