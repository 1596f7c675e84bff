"""Shrinks foreign tasks that are too big for the machine.

Sizes in KernelBench's format are integer literals at module level or where inputs are drawn. They are halved,
batch-like ones first, then the other large ones, until the reference's memory and arithmetic, estimated on meta tensors
(nothing is allocated), fit the limits. If the reference no longer runs after a halving, the halving is tried on every
literal of that value, then on all sizes at once, and otherwise undone. The changes are recorded in the task's
``provenance.scaled``, and the shrunk task goes through the admission gate again.
"""

from __future__ import annotations

import math

from pydantic import Field

from drkernel.config import Config
from drkernel.task import Task
from drkernel.tasks.cost import BATCH, KEPT, Cost, ScaleLimits, estimate
from drkernel.tasks.errors import TaskError
from drkernel.tasks.gate import GateReport, admit
from drkernel.tasks.literals import SizeLiteral, rewrite, size_literals
from drkernel.tasks.reference import load_reference

LIMITS: dict[str, ScaleLimits] = {
    "tiny": ScaleLimits(bytes=512 << 10, flops=1e7),
    "small": ScaleLimits(bytes=64 << 20, flops=2e9),
    "full": ScaleLimits(bytes=16 << 30, flops=1e13),
}
"""Presets by the name of the built-in suite's profiles that they resemble."""


class ScaleResult(Config):
    """A task that was made to fit, or the reason why it could not be."""

    task: Task = Field(description="the shrunk task; the original when nothing had to be changed")
    fits: bool = Field(description="within the limits")
    report: GateReport | None = Field(None, description="the gate's report on the shrunk task; None if it does not fit")
    reason: str | None = Field(None, description="why it does not fit")

    @property
    def usable(self) -> bool:
        """Whether the task fits and was admitted."""
        return self.fits and self.report is not None and self.report.admitted


def scale_task(task: Task, limits: ScaleLimits, seed: int = 0, budget: int | None = None) -> ScaleResult:
    """Shrink a task until it fits, then gate it within ``budget`` bytes of memory. A task that fits is only
    gated."""
    try:
        source, changed, cost = _shrink(task.reference, limits)
    except TaskError as error:
        return ScaleResult(task=task, fits=False, reason=str(error))
    if changed:
        provenance = task.provenance.model_copy(update={"scaled": {**task.provenance.scaled, **changed}})
        task = task.model_copy(update={"reference": source, "profiles": {}, "provenance": provenance})
    if cost.over(limits) > 1:
        reason = f"still {cost.over(limits):.3g} times over the limits ({cost.bytes:,} bytes, {cost.flops:.3g} flops)"
        return ScaleResult(task=task, fits=False, reason=reason)
    return ScaleResult(task=task, fits=True, report=admit(task, None, seed, budget))


def _shrink(source: str, limits: ScaleLimits) -> tuple[str, dict[str, tuple[int, int]], Cost]:
    """Return the shrunk source, its changes (label -> original, used), and its cost. Raises TaskError if it does not
    run."""
    literals = {literal.label: literal for literal in size_literals(source)}
    values = {label: literal.value for label, literal in literals.items()}
    cost = estimate(load_reference(source))
    for number, (labels, floor) in enumerate(_stages(values)):
        if number == 1 and cost.over(limits) > 1:
            values = _fewer_groups(source, literals, values)
        frozen: set[str] = set()
        while cost.over(limits) > 1:
            open_labels = [label for label in labels if label not in frozen and values[label] > floor]
            if not open_labels:
                break
            label = max(open_labels, key=lambda name: values[name])
            # cost is at most linear in a batch and about quadratic in other sizes: halve as often at once as is safe
            times = max(1, int(math.log2(cost.over(limits)) / (1 if number == 0 else 2)))
            attempt = None
            for by in sorted({times, 1}, reverse=True):
                attempt = attempt or _smaller(source, literals, values, label, open_labels, by, floor)
            if attempt is None or attempt[1].over(limits) >= cost.over(limits):
                frozen.add(label)
            else:
                values, cost = attempt
    changed = {
        label: (literal.value, values[label]) for label, literal in literals.items() if literal.value != values[label]
    }
    return rewrite(source, literals.values(), values), changed, cost


def _fewer_groups(source: str, literals: dict[str, SizeLiteral], values: dict[str, int]) -> dict[str, int]:
    """Reduce groups of channels to 8 at most, so that fewer channels still leave several to a group."""
    groups = {label: 8 for label in values if "group" in label.lower() and values[label] > 8 and values[label] % 8 == 0}
    attempt = {**values, **groups}
    try:
        estimate(load_reference(rewrite(source, literals.values(), attempt)))
    except TaskError:
        return values
    return attempt


def _smaller(
    source: str,
    literals: dict[str, SizeLiteral],
    values: dict[str, int],
    label: str,
    others: list[str],
    halvings: int,
    floor: int,
) -> tuple[dict[str, int], Cost] | None:
    """Halve one literal ``halvings`` times; if that does not run, all literals of its value; else all ``others``; None
    if none runs."""
    equal = [name for name in values if values[name] == values[label]]
    for names in ([label], equal, others):
        attempt = {**values, **{name: max(floor, values[name] >> halvings) for name in names}}
        try:
            return attempt, estimate(load_reference(rewrite(source, literals.values(), attempt)))
        except TaskError:
            continue
    return None


def _stages(values: dict[str, int]) -> list[tuple[list[str], int]]:
    """Return which literals to halve in turn, and how far: batches to 2, large sizes to 16, then all but the
    algorithm's to 4."""
    name = {label: label.partition("[")[0].lower() for label in values}
    batch = [label for label in values if BATCH.search(name[label])]
    sizes = [label for label in values if label not in batch and not KEPT.search(name[label])]
    return [(batch, 2), (sizes, 16), (sizes, 4)]
