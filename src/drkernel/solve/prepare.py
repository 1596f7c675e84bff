"""Prepares tasks for a run: loaded, filtered and gated. Sizes are the judge's business (``gym/judge/sizes.py``)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from drkernel.config import ConfigError
from drkernel.solve.config import TaskChoice
from drkernel.task import Task
from drkernel.tasks.errors import TaskError
from drkernel.tasks.gate import GateReport, admit_thin
from drkernel.tasks.loaders import load_tasks

GENERATED = 40
"""generated tasks where a spec gives no number"""


@dataclass
class PreparedTasks:
    """The tasks to judge, and those left out."""

    tasks: list[Task] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """task id -> why"""
    objections: dict[str, str] = field(default_factory=dict)
    """of the gate to tasks that are kept all the same: task id -> what"""

    @property
    def hash(self) -> str:
        """Content hash of the tasks in order."""
        return tasks_hash(self.tasks)


def tasks_hash(tasks: Sequence[Task]) -> str:
    """Return the content hash of tasks in order."""
    return hashlib.sha256("".join(task.content_hash for task in tasks).encode()).hexdigest()[:16]


def choose(spec: str, choice: TaskChoice = TaskChoice()) -> list[Task]:
    """Return the tasks of a spec that pass the filters.

    Raises:
        ConfigError: the spec cannot be read, or no task passes.
    """
    try:
        tasks = _generated(spec) or load_tasks(spec, choice.precision)
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


def _generated(spec: str) -> list[Task]:
    """The tasks of ``generated:train[:COUNT]`` or ``generated:heldout[:COUNT]``; none for another spec."""
    found = re.fullmatch(r"generated:(train|heldout)(?::([1-9]\d{0,5}))?", spec)
    if found is None:
        return []
    from drkernel.rl.data.teacher.problem_families import generate_tasks

    return generate_tasks("train" if found[1] == "train" else "heldout", int(found[2] or GENERATED), seed=0)


def prepare(
    tasks: Sequence[Task],
    *,
    profile: str | None,
    keep_ill_conditioned: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> PreparedTasks:
    """Leave out foreign tasks that cannot distinguish a right answer from a wrong one, or do not run at all.

    Built-in tasks, and those with the size profile that is asked for, have already passed the gate. The tasks that are
    kept are as they were loaded: at which sizes each is checked and timed is decided when it is judged.
    """
    prepared = PreparedTasks()
    for number, task in enumerate(tasks, 1):
        trusted = task.provenance.source in ("builtin", "generated") or profile in task.profiles
        report = None if trusted else admit_thin(task)
        reason = why_not(report) if report is not None else ""
        if reason and not (keep_ill_conditioned and report is not None and report.error is None):
            prepared.left_out[task.id] = reason
        else:
            prepared.tasks.append(task)
            prepared.objections |= {task.id: reason} if reason else {}
        if progress is not None:
            progress(number, len(tasks))
    return prepared


def why_not(report: GateReport) -> str:
    """Return why the gate refuses a task, in words; empty when it admits the task."""
    if report.error:
        return report.error
    if report.admitted:
        return ""
    controls = [reason for reason in report.ill_conditioned_by if " " not in reason]
    others = [reason for reason in report.ill_conditioned_by if " " in reason]
    return "ill-conditioned: " + "; ".join(([f"accepts {', '.join(controls)}"] if controls else []) + others)
