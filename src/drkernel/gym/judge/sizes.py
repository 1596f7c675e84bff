"""The sizes at which a candidate is checked, and those at which it is timed.

Correctness needs data and runs at sizes that can be executed; time needs none and is modelled at the task's own sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from drkernel.gym.judge.memory import TaskTooLarge
from drkernel.gym.judge.reference_at_size import forms_of
from drkernel.gym.request import EvalRequest
from drkernel.task import sized_reference
from drkernel.tasks.axes import size_literals
from drkernel.tasks.cost import ScaleLimits
from drkernel.tasks.errors import TaskError
from drkernel.tasks.thin import Sizing, own_source, thin_sizing, thin_sizings
from drkernel.verdict import Sizes

EXERCISED = ScaleLimits(bytes=2 << 20, flops=4e7)
"""limits of a call that only shows that a kernel is correct"""
MOST_EXERCISES = 4
MOST_TIMES = 32
"""how far a module's own numbers may exceed the limit on operations; more would take minutes to check"""


@dataclass(frozen=True)
class Chosen:
    """A reference at the sizes chosen for a run."""

    source: str
    changed: dict[str, tuple[int, int]]
    """constant -> (the task's own, used here)"""
    profile: str | None
    kept_rows: bool
    """only axes of independent work are shorter than the task's own"""

    @property
    def label(self) -> str:
        """The profile, or the sizes that differ from the task's own, in words; empty at the own sizes."""
        if self.profile is not None:
            return f"profile {self.profile!r}"
        return ", ".join(f"{name} {used} (of {own})" for name, (own, used) in self.changed.items())

    @property
    def sizes(self) -> Sizes:
        """The record for the verdict."""
        return Sizes(profile=self.profile, changed=self.changed, inputs=forms_of(self.source).words)


def chosen_to_check(request: EvalRequest) -> Chosen:
    """The sizes at which answers are compared. A problem with the requested profile is a :class:`TaskError`."""
    task, settings = request.task, request.settings
    if settings.profile is not None or not settings.place.simulated:
        try:
            source = sized_reference(task, settings.profile)
            return Chosen(source, changed_between(own_source(task), source), settings.profile, False)
        except (KeyError, ValueError, SyntaxError) as error:
            raise TaskError(str(error.args[0] if error.args else error)) from error
    limits = ScaleLimits(bytes=settings.checked_bytes, flops=settings.checked_flops)
    try:
        sizing = thin_sizing(task, limits)
    except TaskError:  # it does not run on shapes alone: what is wrong with it comes out when it is run for real
        return Chosen(own_source(task), {}, None, True)
    if sizing.cost.flops > MOST_TIMES * limits.flops:
        raise TaskTooLarge(
            f"one call takes {sizing.cost.flops / 1e9:.3g} GFLOP where nothing that matters can be shortened any more, "
            f"and a checked call may take {limits.flops / 1e9:.3g} or, in such a case, {MOST_TIMES} times that. "
            "Give the task a size profile, shrink the numbers in the reference's module, or raise 'checked_flops'"
        )
    return _of_sizing(sizing)


def chosen_to_time(request: EvalRequest, checked: Chosen) -> Chosen | None:
    """The sizes at which a run without data is timed; None when the checked sizes are timed."""
    task, settings = request.task, request.settings
    if not settings.timing or settings.unsafe_no_checks or settings.time_at == "checked":
        return None
    own = own_source(task)
    if not settings.place.simulated or own == checked.source:
        return None
    return Chosen(own, {}, "full" if "full" in task.profiles else None, True)


def sizings_to_exercise(request: EvalRequest, besides: str) -> list[Chosen]:
    """Sizes at which kernels seen at another size may be launched and compared, the best first."""
    most = ScaleLimits(bytes=request.settings.checked_bytes, flops=request.settings.checked_flops)
    try:
        sizings = thin_sizings(request.task, EXERCISED)
    except TaskError:
        return []
    fitting = [one for one in sizings if one.source != besides and one.cost.over(most) <= 1]
    return [_of_sizing(one) for one in fitting[:MOST_EXERCISES]]


def _of_sizing(sizing: Sizing) -> Chosen:
    return Chosen(sizing.source, sizing.changed, None, sizing.kept_rows)


def changed_between(own: str, used: str) -> dict[str, tuple[int, int]]:
    """Sizes that differ between two texts of one reference: label -> (own, used)."""
    if own == used:
        return {}
    there = {literal.label: literal.value for literal in size_literals(used)}
    pairs = {literal.label: (literal.value, there.get(literal.label, 1)) for literal in size_literals(own)}
    return {label: pair for label, pair in pairs.items() if pair[0] != pair[1]}
