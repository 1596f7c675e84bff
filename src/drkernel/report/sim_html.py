"""A script's run on the simulated GPU as one self-contained HTML page."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

from drkernel.base.files import write_atomic
from drkernel.gym.feedback import duration, percent, size
from drkernel.report.anatomy import Marks, anatomy, time_stack
from drkernel.report.render import render
from drkernel.report.roofline import roofline_plot
from drkernel.report.sim_view import unexecuted
from drkernel.report.svg import legend
from drkernel.report.trace import TRACKS
from drkernel.sim.script import ScriptReport, TraceSpan
from drkernel.verdict import Profile

KERNELS = 6
"""most kernels whose source is shown"""
MAX_BARS = 1500
"""most pieces of device work on the timeline"""
_WIDTH, _ROW = 1000.0, 24
_COLOURS = {owner: f"var(--{owner})" for owner in TRACKS}


def write_page(path: Path, report: ScriptReport) -> None:
    """Write the page of a run; the directory must exist."""
    write_atomic(path, page(report))


def page(report: ScriptReport) -> str:
    """The page as text."""
    profile = _with_details(report)
    details = [row.detail for row in report.kernels if row.detail is not None]
    return render(
        "sim",
        name=Path(report.script).name,
        report=report.model_copy(update={"profile": profile}),
        numbers=_numbers(report),
        unexecuted=unexecuted(report.launches),
        found=[(one.severity, one.kind, one.message, None) for one in report.findings],
        stack=time_stack(profile),
        roofline=roofline_plot(profile),
        timeline=_timeline(report.spans),
        kernels=[anatomy(detail, linecache.getlines, _marked(report)) for detail in details[:KERNELS]],
    )


def _with_details(report: ScriptReport) -> Profile:
    """The profile, with the slowest launch of each kernel."""
    best = {row.kernel: row.detail for row in reversed(report.kernels)}
    rows = tuple(
        row.model_copy(update={"detail": best[row.name]}) if row.owner == "custom" and row.name in best else row
        for row in report.profile.rows
    )
    return report.profile.model_copy(update={"rows": rows})


def _marked(report: ScriptReport) -> Marks:
    """The lines that findings name, with what was found there."""
    found: dict[tuple[str, int], str] = {}
    for one in report.findings:
        if one.file and one.line:
            found.setdefault((one.file, one.line), one.message.partition("; kernel ")[0])
    return found


def _numbers(report: ScriptReport) -> list[tuple[str, str]]:
    profile = report.profile
    found = [
        (duration(profile.elapsed_seconds), "from the first command to the last"),
        (duration(profile.total_seconds), "of work on the device"),
        (percent(profile.coverage), "of it in own kernels"),
        (size(report.peak_bytes), "of device memory"),
    ]
    if report.findings:
        found.append((str(len(report.findings)), "finding" if len(report.findings) == 1 else "findings"))
    return found


def _timeline(spans: Sequence[TraceSpan]) -> Markup:
    """Device work as bars on the modelled clock, a track for each owner."""
    shown = sorted(spans[:MAX_BARS], key=lambda span: span.start)
    if len(shown) < 2:
        return Markup()
    owners = [owner for owner in TRACKS if any(span.owner == owner for span in shown)]
    start, end = shown[0].start, max(span.start + span.seconds for span in shown)
    scale = _WIDTH / ((end - start) or 1.0)
    parts = []
    for span in shown:
        x, y = (span.start - start) * scale, owners.index(span.owner) * _ROW
        width = max(0.8, span.seconds * scale)
        label = f"{span.name}: {duration(span.seconds)} at {duration(max(0.0, span.start))}, {span.bound}-bound"
        parts.append(
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 4}" rx="1.5" '
            f'fill="{_COLOURS[span.owner]}"><title>{escape(label)}</title></rect>'
        )
        if width > 7.5 * len(span.name):
            parts.append(f'<text x="{x + 4:.2f}" y="{y + 14}" class="span">{escape(span.name)}</text>')
    height = len(owners) * _ROW
    left = f" The first {MAX_BARS} of {len(spans)} pieces." if len(spans) > MAX_BARS else ""
    return Markup(
        f'<svg viewBox="0 0 {_WIDTH:.0f} {height}" class="timeline" role="img" aria-label="timeline">'
        f"{''.join(parts)}</svg>"
        f'<p class="dim">{duration(end - start)} from left to right.{left}</p>'
    ) + legend([TRACKS[owner] for owner in owners], [_COLOURS[owner] for owner in owners])
