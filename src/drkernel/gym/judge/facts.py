"""The facts of an evaluation under way: the verdict's fields that are known so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from drkernel.verdict import (
    Correctness,
    Exactness,
    NotChecked,
    ObservedBy,
    Profile,
    SandboxReport,
    Sizes,
    Speedup,
    Timing,
)


@dataclass
class Facts:
    """Fields of :class:`~drkernel.verdict.Verdict` under their names there, with its defaults."""

    language: str | None = None
    correctness: Correctness | None = None
    checked_at: Sizes | None = None
    timed_at: Sizes | None = None
    untimed: str | None = None
    profile: Profile | None = None
    reference_profile: Profile | None = None
    timing: Timing | None = None
    reference_timing: Timing | None = None
    speedup: Speedup | None = None
    coverage: float | None = None
    exactness: Exactness | None = None
    coverage_source: ObservedBy | None = None
    not_checked: tuple[NotChecked, ...] = ()
    sandbox: SandboxReport = field(default_factory=SandboxReport)
    stdout: str = ""

    def withhold(self) -> None:
        """Give neither speedup nor coverage."""
        self.coverage, self.speedup = 0.0, None
