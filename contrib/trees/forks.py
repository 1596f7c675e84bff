"""The growth of a tree of turns: how many copies of each path continue, and which paths are given up.

The rules are those of TreePO's sampler (arXiv 2508.17445), with turns, or segments of turns, in place of its segments.
How often a path is forked depends on what was drawn before the fork and never on what is drawn after it; this keeps the
estimators of :mod:`contrib.trees.maths` unbiased. TreePO's fallback, which forks earlier turns of a tree that has ended
too early, would violate it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from drkernel.config import Config


class RepetitionConfig(Config):
    """When an answer counts as repeating itself."""

    length: int = Field(32, ge=1, description="characters of the text that is looked for")
    times: int = Field(8, ge=2, description="occurrences that make it a circle")


class TreeConfig(Config):
    """Trees instead of separate trajectories: paths fork at turns, and the part they share is sampled once."""

    width: int = Field(16, ge=1, description="finished paths a prompt")
    branching: int = Field(2, ge=1, description="copies of a path after every step, as far as the width allows")
    start: int | None = Field(None, ge=1, description="first answers a prompt; None: as `branching`")
    at: Literal["turn", "segment"] = Field("turn", description="a step is a turn, or `segment` tokens of an answer")
    segment: int = Field(512, ge=1, description="tokens of a step where paths fork within answers")
    depth: int | None = Field(None, ge=1, description="steps after which paths are forked no more; None: always")
    repetition: RepetitionConfig | None = Field(
        None, description="give up a path whose answer repeats itself: it is graded as it is and does not go on"
    )

    @model_validator(mode="after")
    def _fits(self) -> TreeConfig:
        if self.first > self.width:
            raise ValueError(f"more first answers than the width of {self.width}")
        return self

    @property
    def first(self) -> int:
        """The number of first answers of a prompt."""
        return self.branching if self.start is None else self.start

    def turns(self, longest: int) -> int:
        """Return the answers to grade per prompt if no path ends before ``longest`` turns; an upper bound when paths
        fork within answers."""
        if self.at == "segment":
            return self.width * longest
        active = graded = self.first
        for step in range(1, longest):
            active = sum(copies(active, 0, 0, step, self))
            graded += active
        return graded


def copies(active: int, finished: int, ended: int, step: int, config: TreeConfig) -> list[int]:
    """Return how many paths each of ``active`` paths becomes after step number ``step`` (from 1).

    ``finished`` paths are complete, ``ended`` of them in this step: their forks go to the others. Every path continues
    at least once; the last takes the remainder of an uneven division.
    """
    if not active:
        return []
    wanted = active
    if config.depth is None or step < config.depth:
        wanted = max(active, min(config.width - finished, config.branching * (active + ended)))
    each, rest = divmod(wanted, active)
    return [each] * (active - 1) + [each + rest]


def repeats(text: str, config: RepetitionConfig) -> bool:
    """Return whether the last ``length`` characters of ``text`` occur in it at least ``times`` times, counting
    overlaps."""
    tail = text[-config.length :]
    if len(tail) < config.length:
        return False
    found, start = 0, text.find(tail)
    while start >= 0:
        found += 1
        start = text.find(tail, start + 1)
    return found >= config.times
