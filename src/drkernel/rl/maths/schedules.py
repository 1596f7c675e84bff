"""Learning-rate schedules: constant and cosine, with a linear warm-up.

This file needs nothing but the standard library; any training engine can take it as it is. A schedule is a frozen
record; ``factor(step)`` multiplies the base learning rate, for steps counted from 0.
"""

import math
from dataclasses import dataclass


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
        if not 0 <= self.floor <= 1:
            raise ValueError(f"floor must be in [0, 1], got {self.floor}")
        if not 0 <= self.warmup < self.total:
            raise ValueError(f"need 0 <= warmup < total, got warmup {self.warmup} and total {self.total}")

    def factor(self, step: int) -> float:
        """Factor at ``step`` >= 0."""
        if step < self.warmup:
            return warmup_factor(step, self.warmup)
        progress = min(1.0, (step - self.warmup) / (self.total - self.warmup))
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * progress))


def warmup_factor(step: int, warmup: int) -> float:
    """Return (step + 1)/(warmup + 1), at most 1: the first step already learns, and the first step after warm-up runs
    at the full rate."""
    if step < 0:
        raise ValueError(f"steps count from 0, got {step}")
    return min(1.0, (step + 1) / (warmup + 1))
