"""A verdict as one self-contained HTML page: no script, no network, light and dark, every text escaped."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from drkernel.gym.feedback import duration, percent, sizes_text
from drkernel.report.render import render, replace_file
from drkernel.task import Task, sized_reference
from drkernel.verdict import Verdict


def write_page(path: Path, verdict: Verdict, *, task: Task, candidate: str, profile: str | None) -> None:
    """Write the page of ``verdict``; the directory must exist."""
    replace_file(path, page(verdict, task=task, candidate=candidate, profile=profile))


def page(
    verdict: Verdict,
    *,
    task: Task,
    candidate: str,
    profile: str | None,
    before: Markup = Markup(),
    after: Markup = Markup(),
) -> str:
    """The page as text; the reference is shown at the size ``profile`` that it was graded at.

    ``before`` and ``after`` are HTML that a caller adds at the top and before the sources.
    """
    return render(
        "verdict",
        verdict=verdict,
        numbers=_numbers(verdict),
        sizes=sizes_text(verdict),
        candidate=candidate,
        reference=sized_reference(task, profile),
        before=before,
        after=after,
    )


def _numbers(verdict: Verdict) -> list[tuple[str, str]]:
    """The figures at the top, each with what it is."""
    items: list[tuple[str, str]] = []
    if verdict.speedup is not None:
        speedup = verdict.speedup
        interval = f" [{speedup.low:.2f}, {speedup.high:.2f}]"
        items.append((f"{speedup.value:.2f}x", f"speedup over {verdict.baseline}, {speedup.kind}{interval}"))
    if verdict.timing is not None and verdict.reference_timing is not None:
        items.append((duration(verdict.timing.seconds), f"against {duration(verdict.reference_timing.seconds)}"))
    if verdict.coverage is not None:
        told = ", as the candidate's process tells" if verdict.coverage_source == "runner" else ""
        items.append((percent(verdict.coverage), "of device time in own kernels" + told))
    if verdict.correctness is not None and verdict.correctness.checked_calls:
        right = f"{verdict.correctness.passed_calls}/{verdict.correctness.checked_calls}"
        items.append((right, "checked calls right"))
    return items
