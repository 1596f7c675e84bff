"""A verdict as one self-contained HTML page: no script, no network, light and dark, every text escaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from drkernel.base.files import write_atomic
from drkernel.gym.feedback import duration, percent, sizes_text, times
from drkernel.report.against import against
from drkernel.report.anatomy import anatomy, time_stack
from drkernel.report.render import render
from drkernel.report.roofline import roofline_plot
from drkernel.sim.gpu.detail import OWN_FILE
from drkernel.task import Task, sized_reference
from drkernel.verdict import Verdict


def write_page(path: Path, verdict: Verdict, *, task: Task, candidate: str, profile: str | None) -> None:
    """Write the page of ``verdict``; the directory must exist."""
    write_atomic(path, page(verdict, task=task, candidate=candidate, profile=profile))


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
        found=[(one.severity, one.kind, one.message, one.evidence) for one in verdict.findings],
        against=against(verdict.profile, verdict.reference_profile),
        candidate=candidate,
        reference=sized_reference(task, profile),
        before=before,
        **_by_line(verdict, candidate),
        after=after,
    )


def _by_line(verdict: Verdict, candidate: str) -> dict[str, Any]:
    """Where the candidate's modelled time goes, for verdicts that say so."""
    profile = verdict.profile
    details = [row.detail for row in profile.rows if row.detail is not None] if profile is not None else []
    if profile is None or not details:
        return {"kernels": [], "stack": "", "roofline": ""}
    lines = candidate.splitlines()
    kernels = [anatomy(detail, lambda file: lines if file == OWN_FILE else []) for detail in details]
    return {"kernels": kernels, "stack": time_stack(profile), "roofline": roofline_plot(profile)}


def _numbers(verdict: Verdict) -> list[tuple[str, str]]:
    """The figures at the top, each with a caption."""
    items: list[tuple[str, str]] = []
    if verdict.speedup is not None:
        speedup = verdict.speedup
        interval = f" [{speedup.low:.2f}, {speedup.high:.2f}]"
        items.append((f"{times(speedup.value)}x", f"speedup over {verdict.baseline}, {speedup.kind}{interval}"))
    if verdict.timing is not None and verdict.reference_timing is not None:
        items.append((duration(verdict.timing.seconds), f"against {duration(verdict.reference_timing.seconds)}"))
    if verdict.coverage is not None:
        told = ", as the candidate's process tells" if verdict.coverage_source == "runner" else ""
        items.append((percent(verdict.coverage), "of device time in own kernels" + told))
    if verdict.correctness is not None and verdict.correctness.checked_calls:
        right = f"{verdict.correctness.passed_calls}/{verdict.correctness.checked_calls}"
        items.append((right, "checked calls right"))
    return items
