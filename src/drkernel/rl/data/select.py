"""Selection of data: the trajectories of a file that supervised training sees.

A filter takes the rows of a file (drkernel's cold-start rows, or any with ``messages`` and graded ``turns``) and
returns the indices to keep. Recipes name filters in ``select``; they are applied in sequence. The two published methods
were taken from their abstracts and project pages; constants that these do not state are ours.

- ``successful``: the last answer is right (rejection-sampling fine-tuning).
- ``rloop``: *RLoop* (arXiv 2511.04285) turns what RL explored into an expert set, the successful trajectories of tasks
  that are still hard, fine-tunes the *initial* policy on it and starts RL again from there. This is the set.
- ``concur``: *ConCuR* (arXiv 2510.07356) keeps, of several correct answers per task, those that are fast and short, and
  balances the kinds of tasks: concise reasoning goes with better kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from drkernel.config import ConfigError
from drkernel.registry import Method, Registry

Row = dict[str, Any]
Filter = Callable[..., list[int]]

filters: Registry[Filter] = Registry("filter of data")
"""``f(rows, **options) -> list[int]``: the indices of the rows to keep."""


def select(rows: Sequence[Row], methods: Sequence[Method]) -> list[Row]:
    """Return the rows that all filters keep, in order.

    Raises :class:`ConfigError` for an unknown filter or option, for rows without graded turns, and when nothing is
    left.
    """
    kept = list(rows)
    for method in methods:
        filters.check("select", method.name, method.options, given=("rows",))
        before = len(kept)
        kept = [kept[index] for index in sorted(filters.get(method.name)(kept, **method.options))]
        if before and not kept:
            raise ConfigError(f"select: {method.name} keeps none of {before} trajectories")
    return kept


@filters.register("successful")
def successful(rows: Sequence[Row]) -> list[int]:
    """Return the rows whose last turn is correct."""
    return [index for index, row in enumerate(rows) if _last(row).get("status") == "correct"]


@filters.register("rloop")
def rloop(rows: Sequence[Row], *, hard: float = 0.5, per_task: int | None = None) -> list[int]:
    """Return successful rows of tasks of which at most the share ``hard`` of the rows succeeds (1: of all tasks), at
    most ``per_task`` per task, the fastest first. The paper's threshold is not established; this one is ours."""
    good = set(successful(rows))
    kept: list[int] = []
    for members in _by(rows, _task).values():
        right = sorted((index for index in members if index in good), key=lambda index: (-_speedup(rows[index]), index))
        if right and len(right) <= hard * len(members):
            kept += right[:per_task]
    return kept


@filters.register("concur")
def concur(rows: Sequence[Row], *, speedup: float = 1.0, per_task: int = 1, per_family: int | None = None) -> list[int]:
    """Return, for each task, the ``per_task`` shortest rows whose last turn is correct and at least ``speedup`` times
    as fast as the reference; then at most ``per_family`` of each family (None: as many as the rarest one has), the
    fastest first.

    Length is that of the answers in characters. The paper's own thresholds are not established; these are ours.
    """
    fast = [index for index in successful(rows) if _speedup(rows[index]) >= speedup]
    kept: list[int] = []
    for members in _by([rows[index] for index in fast], _task).values():
        kept += sorted((fast[k] for k in members), key=lambda index: (_length(rows[index]), index))[:per_task]
    families = [[kept[k] for k in members] for members in _by([rows[index] for index in kept], _family).values()]
    most = min(map(len, families), default=0) if per_family is None else per_family
    return [
        index
        for members in families
        for index in sorted(members, key=lambda index: (-_speedup(rows[index]), index))[:most]
    ]


def _by(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, list[int]]:
    """Indices by key, in order."""
    found: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        found.setdefault(key(row), []).append(index)
    return found


def _last(row: Row) -> dict[str, Any]:
    """The record of the last graded turn. Raises :class:`ConfigError`."""
    turns = row.get("turns")
    if not isinstance(turns, list) or not turns or not isinstance(turns[-1], dict):
        raise ConfigError(f"select needs rows with graded 'turns'; row {row.get('id', '?')!r} has none")
    return turns[-1]


def _task(row: Row) -> str:
    """Return the task that a row answers: its id, else its first message."""
    task = row.get("task") or {}
    return str(task.get("id") or row["messages"][0]["content"])


def _family(row: Row) -> str:
    return str((row.get("task") or {}).get("family") or "")


def _speedup(row: Row) -> float:
    return float(_last(row).get("speedup") or 0.0)


def _length(row: Row) -> int:
    """Characters of the answers."""
    return sum(len(message["content"]) for message in row["messages"] if message["role"] == "assistant")
