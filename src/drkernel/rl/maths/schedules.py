"""Learning-rate schedules: constant, cosine, warm-up, and a decay triggered by a surge in response length.

This file needs nothing but the standard library; any training engine can take it as it is.

A schedule is a frozen record; ``factor(step)`` multiplies the base learning rate, for steps counted from 0. The
length-triggered schedule keeps its observations in a :class:`LengthState`, which is part of the checkpoint.

Length-triggered decay is from *Beyond Precision* (arXiv 2602.01826): gradient noise and the mismatch between sampler
and trainer grow together, a surge in mean response length precedes both, and a smaller rate from there on keeps the run
stable. The paper's text gives the idea and its setting (Qwen3-4B, learning rate 1e-6, batch 64, on-policy); its
constants could not be read. Period, factor and floor are those of a public reproduction, the surge test is ours;
:class:`LengthTriggered` says which is whose, and every constant is a parameter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace


def _check_factor(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")


@dataclass(frozen=True)
class Constant:
    """The base rate after a linear warm-up."""

    warmup: int = 0
    """Steps over which the factor rises from 1/(warmup + 1) to 1; 0 for none."""

    def factor(self, step: int) -> float:
        """Factor at ``step`` >= 0."""
        return warmup_factor(step, self.warmup)


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 at the end of warm-up to ``floor`` at ``total``, and ``floor`` after that."""

    total: int
    """Step at which the floor is reached."""
    warmup: int = 0
    """Steps of linear warm-up, part of ``total``."""
    floor: float = 0.0
    """Smallest factor."""

    def __post_init__(self) -> None:
        _check_factor("floor", self.floor)
        if not 0 <= self.warmup < self.total:
            raise ValueError(f"need 0 <= warmup < total, got warmup {self.warmup} and total {self.total}")

    def factor(self, step: int) -> float:
        """Factor at ``step`` >= 0."""
        if step < self.warmup:
            return warmup_factor(step, self.warmup)
        progress = min(1.0, (step - self.warmup) / (self.total - self.warmup))
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class LengthState:
    """Observations of the length-triggered schedule; JSON-able, for checkpoints."""

    recent: tuple[float, ...] = ()
    """Mean response lengths of the last steps, oldest first."""
    baseline: float | None = None
    """Lowest running mean over ``window`` steps after warm-up; a surge is measured relative to it."""
    observed: int = 0
    """Steps observed: after warm-up, with answers that are not all empty."""
    triggered: int | None = None
    """Step of the surge; None until there is one."""


@dataclass(frozen=True)
class LengthTriggered:
    """Constant until mean response length surges; then the factor shrinks by ``decay`` every period, down to ``floor``.

    The idea is that of arXiv 2602.01826, whose constants could not be read. Period 1.8, factor 0.5, floor 0.1 and the
    first step down one period after the surge are those of a public reproduction on verl (Qwen3-4B, lr 1e-6, warm-up
    10, surge near step 110); its own surge test is three times the mean of the first 50 steps.
    """

    warmup: int = 0
    """Steps of linear warm-up; response lengths during warm-up are ignored."""
    surge: float = 1.5
    """A running mean at least this many times the lowest one so far is a surge (our default)."""
    window: int = 10
    """Steps in the running mean (our default)."""
    decay: float = 0.5
    """Factor for each period after the surge (the reproduction's; recalled as the paper's)."""
    period: float = 1.8
    """Length of a period as a multiple of the step of the surge (the reproduction's)."""
    floor: float = 0.1
    """Smallest factor (the reproduction's; recalled as the paper's)."""
    state: LengthState = field(default_factory=LengthState)
    """Observations so far."""

    def __post_init__(self) -> None:
        _check_factor("floor", self.floor)
        if not (0 < self.decay < 1 and self.surge > 1 and self.window >= 1 and self.period > 0):
            raise ValueError(f"need 0 < decay < 1, surge > 1, window >= 1 and period > 0, got {self}")

    def observe(self, step: int, mean_length: float) -> LengthTriggered:
        """Return the schedule after a step whose responses had ``mean_length`` tokens on average. Call once per step,
        in order.

        Lengths often fall at first, when the policy learns to come to the point, so that the baseline is the lowest
        running mean so far and not the first. A step without a token says nothing about lengths and is passed over.
        """
        old = self.state
        if step < self.warmup or old.triggered is not None:
            return self
        if not math.isfinite(mean_length) or mean_length < 0:
            raise ValueError(f"mean response length {mean_length} at step {step} is not a length")
        if mean_length == 0:
            return self
        recent = (*old.recent, float(mean_length))[-self.window :]
        observed, baseline = old.observed + 1, old.baseline
        mean = sum(recent) / len(recent)
        surged = baseline is not None and mean >= self.surge * baseline
        if observed >= self.window and not surged:
            baseline = mean if baseline is None else min(baseline, mean)
        state = LengthState(recent, baseline, observed, step if surged else None)
        return replace(self, state=state)

    def factor(self, step: int) -> float:
        """Factor at ``step``: after the surge decay^k, where k periods have passed."""
        surge = self.state.triggered
        if surge is None or step < surge:
            return warmup_factor(step, self.warmup)
        length = max(1.0, self.period * surge)
        stairs = math.floor((step - surge) / length)
        if not stairs:
            return warmup_factor(step, self.warmup)
        return max(self.floor, self.decay**stairs)


Schedule = Constant | Cosine | LengthTriggered


def warmup_factor(step: int, warmup: int) -> float:
    """Return (step + 1)/(warmup + 1), at most 1: the first step already learns, and the first step after warm-up runs
    at the full rate."""
    if step < 0:
        raise ValueError(f"steps count from 0, got {step}")
    return min(1.0, (step + 1) / (warmup + 1))
