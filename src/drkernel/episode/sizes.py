"""At which sizes a run's answers were checked and timed, counted, in words and task by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from drkernel.verdict import Verdict


def sizes_of(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Count times by what was timed, for a summary in JSON.

    ``own`` and ``checked`` count timed answers: at their task's own sizes, or only at the smaller ones that were
    checked; ``untimed`` counts the reasons why own sizes were not timed, of answers that were timed at smaller ones and
    of those without any time (what goes by data that its reference does not go by). ``by_task`` has both sizes of each
    task in words, from the last answer to it that was timed (else checked); ``tasks_apart`` counts those where they
    differ.
    """
    own = checked = 0
    untimed: Counter[str] = Counter()
    tasks: dict[str, dict[str, str | None]] = {}
    for verdict in verdicts:
        timed_at, checked_at = verdict.timed_at, verdict.checked_at
        if checked_at is not None and (timed_at is not None or verdict.task_id not in tasks):
            words = None if timed_at is None else timed_at.words
            tasks[verdict.task_id] = {"checked_at": checked_at.words, "timed_at": words}
        if timed_at is not None:
            own, checked = (own, checked + 1) if timed_at.changed else (own + 1, checked)
        if verdict.untimed:
            untimed[verdict.untimed] += 1
    apart = sum(row["timed_at"] not in (None, row["checked_at"]) for row in tasks.values())
    counts = {"own": own, "checked": checked, "tasks": len(tasks), "tasks_apart": apart}
    return {**counts, "untimed": dict(untimed.most_common()), "by_task": tasks}


def size_lines(sizes: dict[str, Any]) -> list[str]:
    """Describe :func:`sizes_of` in a sentence or more; nothing where no answer was timed."""
    timed = sizes["own"] + sizes["checked"]
    if not timed:
        return []
    lines = [
        f"{sizes['own']} of {timed} times are of the tasks' own sizes; the answers to {sizes['tasks_apart']} of "
        f"{sizes['tasks']} tasks were checked at smaller ones"
    ]
    return lines + [f"{count} answers: {why}" for why, count in sizes["untimed"].items()]
