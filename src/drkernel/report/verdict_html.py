"""A verdict as one self-contained HTML page: no script, no network, light and dark, every text escaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from drkernel.base.files import write_atomic
from drkernel.gym.feedback import coverage_text, duration, percent, sizes_text, times
from drkernel.report.anatomy import anatomy, time_stack
from drkernel.report.render import render
from drkernel.report.roofline import roofline_plot
from drkernel.report.verdict_view import finding_text
from drkernel.sim.gpu.detail import OWN_FILE
from drkernel.task import Task, sized_reference
from drkernel.verdict import Profile, Verdict


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
        found=[(one.severity, one.kind, finding_text(one), one.evidence) for one in verdict.findings],
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
        hangs = f"; {speedup.host_note}" if speedup.host_note else ""
        items.append((f"{times(speedup.value)}x", f"speedup over {verdict.baseline}, {speedup.kind}{interval}{hangs}"))
    if verdict.timing is not None and verdict.reference_timing is not None:
        items.append((duration(verdict.timing.seconds), f"against {duration(verdict.reference_timing.seconds)}"))
    if verdict.coverage is not None:
        told = ", as the candidate's process tells" if verdict.coverage_source == "runner" else ""
        share, _, words = coverage_text(verdict).partition(" ")
        items.append((share, words + told))
    if verdict.correctness is not None and verdict.correctness.checked_calls:
        right = f"{verdict.correctness.passed_calls}/{verdict.correctness.checked_calls}"
        items.append((right, "checked calls right"))
    return items


# ---- candidate above reference on one scale of time


WIDTH, ROW, GAP, LETTER = 1000.0, 26, 30, 6.6
"""of the picture, of a track, between the tracks' tops less a track, of a letter"""


def against(profile: Profile | None, reference: Profile | None) -> Markup:
    """Both profiles' device time, the costliest first, with the host's waits at the end; empty where one is missing."""
    if profile is None or reference is None:
        return Markup()
    longest = max(profile.elapsed_seconds, reference.elapsed_seconds)
    if longest <= 0:
        return Markup()
    parts = [*_track("candidate", profile, longest, 0), *_track("reference", reference, longest, ROW + GAP)]
    height = 2 * (ROW + GAP) - 8
    return Markup(
        f'<div class="scroll"><svg viewBox="0 0 {WIDTH:.0f} {height}" class="timeline against" role="img" '
        f'aria-label="candidate and reference on one scale of time">{"".join(parts)}</svg></div>'
        f'<p class="dim">One call of each on one scale ({profile.kind}, {escape(profile.device)}), the costliest '
        "first. Green: own kernels, yellow: PyTorch, red: copies, grey: the device waits for the host.</p>"
    )


def _track(name: str, profile: Profile, longest: float, top: float) -> list[str]:
    """SVG of one profile: its name and length, and a bar for each row."""
    scale, x = WIDTH / longest, 0.0
    parts = [f'<text x="0" y="{top + 13}" class="label">{name} {escape(duration(profile.elapsed_seconds))}</text>']
    rows = [(row.name, row.seconds, f"var(--{row.owner})") for row in sorted(profile.rows, key=lambda r: -r.seconds)]
    waits = profile.elapsed_seconds - sum(seconds for _, seconds, _ in rows)
    if waits > 0.005 * longest:
        rows.append(("waiting for the host", waits, "var(--line)"))
    for kernel, seconds, colour in rows:
        width = max(0.8, seconds * scale)
        label = f"{kernel}: {duration(seconds)}, {percent(seconds / profile.elapsed_seconds)}"
        parts.append(
            f'<rect x="{x:.2f}" y="{top + 19}" width="{max(0.6, width - 1):.2f}" height="{ROW - 4}" rx="2" '
            f'fill="{colour}"><title>{escape(label)}</title></rect>'
        )
        if width > LETTER * len(kernel) + 8 and not colour.endswith("line)"):
            parts.append(f'<text x="{x + 5:.2f}" y="{top + 34}" class="span">{escape(kernel)}</text>')
        x += width
    return parts
