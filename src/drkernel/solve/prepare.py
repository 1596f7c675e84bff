"""Prepares tasks for a run: loaded, filtered, shrunk where a simulated GPU could not hold them, and gated."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from drkernel.config import ConfigError
from drkernel.gym.device import parse_device
from drkernel.solve.config import Choice
from drkernel.task import Task
from drkernel.tasks.errors import TaskError
from drkernel.tasks.gate import GateReport, admit
from drkernel.tasks.loaders import load_tasks
from drkernel.tasks.scale import LIMITS, scale_task

SIMULATED = ("tiny", "small")
"""Limits that a simulated GPU is shrunk to: the second where the first cannot be reached."""


@dataclass
class Prepared:
    """The tasks to judge, and those left out."""

    tasks: list[Task] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """task id -> why"""

    @property
    def shrunk(self) -> int:
        """Number of tasks that run at smaller sizes than they were written with."""
        return sum(bool(task.provenance.scaled) for task in self.tasks)

    @property
    def hash(self) -> str:
        """Content hash of the tasks in order."""
        return tasks_hash(self.tasks)


def tasks_hash(tasks: Sequence[Task]) -> str:
    """Return the content hash of tasks in order."""
    return hashlib.sha256("".join(task.content_hash for task in tasks).encode()).hexdigest()[:16]


def choose(spec: str, choice: Choice = Choice()) -> list[Task]:
    """Return the tasks of a spec that pass the filters.

    Raises:
        ConfigError: the spec cannot be read, or no task passes.
    """
    try:
        tasks = load_tasks(spec, choice.precision)
    except TaskError as error:
        raise ConfigError(str(error)) from error
    chosen = [
        task
        for task in tasks
        if choice.level in (None, task.level)
        and (choice.tag is None or choice.tag in task.tags)
        and (choice.match or "") in task.id
    ]
    if not chosen:
        raise ConfigError(f"none of the {len(tasks)} tasks of {spec} passes the filters")
    if choice.limit is not None and choice.limit < len(chosen):
        chosen = [chosen[i * len(chosen) // choice.limit] for i in range(choice.limit)]
    return chosen


def prepare(
    tasks: Sequence[Task],
    *,
    device: str,
    profile: str | None,
    scale: str | None = None,
    keep_ill_conditioned: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Prepared:
    """Make foreign tasks fit ``device``, and leave out those that cannot distinguish a right answer from a wrong one.

    Built-in tasks have size profiles and have already passed the gate. ``scale`` names the limits to shrink to ("tiny",
    "small", "full"). None keeps the sizes on a real GPU; on a simulated one it shrinks to "tiny", or to "small" if the
    weights alone exceed that.
    """
    if scale is not None and scale not in LIMITS:
        raise ConfigError(f"scale {scale!r} is unknown; there are: {', '.join(LIMITS)}")
    scales = (scale,) if scale is not None else SIMULATED if parse_device(device).simulated else ()
    prepared = Prepared()
    for number, task in enumerate(tasks, 1):
        if task.provenance.source in ("builtin", "generated") or (profile is not None and profile in task.profiles):
            prepared.tasks.append(task)
        else:
            _prepare_one(task, scales, keep_ill_conditioned, prepared)
        if progress is not None:
            progress(number, len(tasks))
    return prepared


def shrink(task: Task, scales: Sequence[str]) -> tuple[Task, GateReport] | str:
    """Return the task at the first of ``scales`` that it fits, with the gate's report; or the reason why it fits
    none."""
    reason = ""
    for scale in scales:
        result = scale_task(task, LIMITS[scale])
        if result.fits and result.report is not None:
            return result.task, result.report
        reason = result.reason or f"does not fit the limits of {scale!r}"
    return reason


def _prepare_one(task: Task, scales: Sequence[str], keep: bool, prepared: Prepared) -> None:
    if scales:
        shrunk = shrink(task, scales)
        if isinstance(shrunk, str):
            prepared.left_out[task.id] = shrunk
            return
        task, report = shrunk
    else:
        report = admit(task, None)
    reason = why_not(report)
    if reason and not (keep and report.error is None):
        prepared.left_out[task.id] = reason
    else:
        prepared.tasks.append(task)


def why_not(report: GateReport) -> str:
    """Return why the gate refuses a task, in words; empty when it admits the task."""
    if report.error:
        return report.error
    if report.admitted:
        return ""
    controls = [reason for reason in report.ill_conditioned_by if " " not in reason]
    others = [reason for reason in report.ill_conditioned_by if " " in reason]
    return "ill-conditioned: " + "; ".join(([f"accepts {', '.join(controls)}"] if controls else []) + others)
