"""A verdict in the terminal, and as one self-contained HTML page: no script, no network, every text escaped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from drkernel.base.files import write_atomic
from drkernel.gym.feedback import (
    coverage_text,
    duration,
    exactness_text,
    number,
    percent,
    quote_line,
    sizes_text,
    times,
    told_apart,
)
from drkernel.report.anatomy import anatomy, roofline_plot, time_stack
from drkernel.report.render import OWNERS, STATUSES, excerpt, finding_text, render, shown_findings
from drkernel.task import Task, sized_reference
from drkernel.verdict import OWN_FILE, Finding, Profile, ProfileRow, Verdict

SEVERITY = {"hack": ("magenta", "hack"), "bug": ("red", "bug"), "note": ("cyan", "note")}
BAR = 14


def terminal(verdict: Verdict, source: str | None = None) -> RenderableType:
    """Render the parts that a person wants to know first. ``source`` is the candidate; with it, errors quote their
    line."""
    return Group(*_parts(verdict, source))


def _parts(verdict: Verdict, source: str | None) -> Iterator[RenderableType]:
    yield _headline(verdict)
    if verdict.error is not None:
        yield from _error(verdict, source)
    elif verdict.status in ("incorrect", "hack") and (wrong := _mismatch(verdict)):
        yield Text(wrong, style="red")
    if verdict.findings:
        yield _indent(_findings(verdict.findings))
    if verdict.profile is not None:
        yield Text("\nOne call " + _kind(verdict.profile), style="bold")
        yield _indent(profile_table(verdict.profile))
        if verdict.reference_profile is not None:
            yield Text("Reference " + _kind(verdict.reference_profile), style="bold")
            yield _indent(profile_table(verdict.reference_profile))
    if verdict.not_checked:
        yield _not_checked(verdict)
    yield _footer(verdict)


def _kind(profile: Profile) -> str:
    busy = f", {duration(profile.total_seconds)} on the device" if profile.host else ""
    host = f"; host: {profile.host}" if profile.host else ""
    return f"({profile.kind}, {profile.device}{host}): {duration(profile.elapsed_seconds)}{busy}"


def _headline(verdict: Verdict) -> Text:
    line = Text()
    line.append(
        f" {verdict.status.upper().replace('_', ' ')} ", style=f"bold reverse {STATUSES[verdict.status].colour}"
    )
    line.append(f"  {verdict.task_id}", style="bold")
    if verdict.speedup is not None and verdict.timing is not None and verdict.reference_timing is not None:
        speedup = verdict.speedup
        style = "bold green" if speedup.low > 1 else "bold yellow"
        line.append(f"\n{times(speedup.value)}x", style=style if verdict.is_correct else "dim")
        line.append(f" [{speedup.low:.2f}, {speedup.high:.2f}] {speedup.confidence:.0%}")
        line.append(
            f"  {duration(verdict.reference_timing.seconds)} ({verdict.baseline}) -> "
            f"{duration(verdict.timing.seconds)}, {speedup.kind} on {verdict.timing.device}"
        )
        if speedup.host_note:
            line.append(f"\n{speedup.host_note}", style="yellow")
    sizes = sizes_text(verdict)
    if sizes:
        line.append(f"\n{sizes}", style="yellow" if verdict.untimed else "")
    if verdict.coverage is not None:
        line.append("\ncoverage ", style="bold")
        line.append(coverage_text(verdict))
        line.append(", says its own process" if verdict.coverage_source == "runner" else "")
    if verdict.correctness is not None and verdict.correctness.checked_calls:
        checked = verdict.correctness
        line.append(f"\n{checked.passed_calls}/{checked.checked_calls} calls right")
        if checked.max_error is not None and checked.passed_calls:
            line.append(f", worst error {number(checked.max_error)} of what is allowed")
    if exact := exactness_text(verdict):
        line.append(f"\n{exact}")
    return line


def _error(verdict: Verdict, source: str | None) -> Iterator[RenderableType]:
    error = verdict.error
    assert error is not None
    where = f" at line {error.line}" if error.line else ""
    yield Text(f"\n{error.type}{where}: {error.message.strip()}", style="red")
    quoted = quote_line(source, error.line)
    if quoted:
        yield _indent(Text(quoted))
    elif error.traceback:
        yield _indent(Text(error.traceback.rstrip(), style="dim"))


def _mismatch(verdict: Verdict) -> str:
    """What is wrong with the outputs, by the worst element; empty where nothing is."""
    if verdict.correctness is None or verdict.correctness.mismatch is None:
        return (verdict.correctness and verdict.correctness.message) or ""
    worst = verdict.correctness.mismatch
    actual, expected = told_apart(worst.actual, worst.expected)
    return (
        f"worst element: output {worst.output}{list(worst.index)} is {actual}, expected {expected} "
        f"± {number(worst.tolerance)}; {percent(worst.wrong_fraction)} of the elements are wrong"
    )


def _findings(findings: tuple[Finding, ...]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for finding in findings:
        colour, word = SEVERITY[finding.severity]
        table.add_row(Text(word, style=f"bold {colour}"), finding.kind, Text(finding_text(finding)))
    return table


def profile_table(profile: Profile, rows: int = 10) -> RenderableType:
    """One bar per kernel or operator, the longest first; last what limits it, and how much of the roofline it has."""
    if not profile.rows:
        return Text("no device work", style="dim")
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    for justify in ("left", "left", "left", "right", "right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)  # type: ignore[arg-type]
    ordered = sorted(profile.rows, key=lambda row: -row.seconds)
    for row in ordered[:rows]:
        table.add_row(*_profile_row(row))
    if len(ordered) > rows:
        rest = sum(row.seconds for row in ordered[rows:])
        table.add_row("", Text(f"{len(ordered) - rows} more", style="dim"), "", "", duration(rest), "", "")
    return table


def _profile_row(row: ProfileRow) -> list[RenderableType]:
    colour, owner = OWNERS[row.owner]
    limit: str = row.bound or ""
    if row.roofline is not None and row.bound != "latency":
        limit += f" {percent(row.roofline)}" if row.roofline <= 1 else " from L2"
    return [
        bar(row.share, colour),
        Text(row.name, style="bold" if row.owner == "custom" else ""),
        Text(owner, style=colour),
        f"{row.calls}x",
        duration(row.seconds),
        percent(row.share),
        Text(limit, style="dim"),
    ]


def bar(share: float, colour: str, width: int = BAR) -> Text:
    """A horizontal bar in eighths of a character."""
    eighths = max(1, round(min(1.0, share) * width * 8)) if share > 0 else 0
    text = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
    return Text(text.ljust(width), style=colour)


def _not_checked(verdict: Verdict) -> Text:
    """List the checks that this device does not allow, one line each."""
    line = Text(f"\nNot checked on {verdict.device}", style="yellow")
    for item in verdict.not_checked:
        line.append(f"\n  {item.check}: {item.why}", style="dim")
    return line


def _footer(verdict: Verdict) -> Text:
    line = Text(style="dim")
    sandbox = verdict.sandbox
    if sandbox.layers or sandbox.missing:
        line.append("\nsandbox: " + (", ".join(sandbox.layers) or "none"))
        for layer, why in sandbox.missing.items():
            line.append(f"\n  without {layer}: {why}")
    phases = ", ".join(f"{name} {duration(seconds)}" for name, seconds in verdict.phases.items() if seconds > 5e-4)
    line.append(f"\ngraded in {duration(verdict.seconds)}" + (f" ({phases})" if phases else ""))
    return line


def _indent(item: RenderableType) -> Padding:
    return Padding(item, (0, 0, 0, 2), expand=False)


# ---- A verdict as one self-contained HTML page


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
        sentences=[*filter(None, (sizes_text(verdict), exactness_text(verdict), _mismatch(verdict)))],
        found=shown_findings(verdict.findings, candidate),
        lines_of_error=excerpt(candidate, verdict.error.line if verdict.error is not None else None),
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
    return {
        "kernels": kernels,
        "stack": time_stack(profile),
        "roofline": roofline_plot(profile, verdict.reference_profile),
    }


def _numbers(verdict: Verdict) -> list[tuple[str, str]]:
    """The figures at the top, each with a caption."""
    items: list[tuple[str, str]] = []
    if verdict.speedup is not None:
        speedup = verdict.speedup
        interval = f" [{speedup.low:.2f}, {speedup.high:.2f}]"
        note = f"; {speedup.host_note}" if speedup.host_note else ""
        items.append((f"{times(speedup.value)}×", f"speedup over {verdict.baseline}, {speedup.kind}{interval}{note}"))
    if verdict.timing is not None and verdict.reference_timing is not None:
        items.append((duration(verdict.timing.seconds), f"against {duration(verdict.reference_timing.seconds)}"))
    if verdict.coverage is not None:
        said = ", says the candidate's own process" if verdict.coverage_source == "runner" else ""
        share, _, words = coverage_text(verdict).partition(" ")
        items.append((share, words + said))
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
        "first; grey: the device waits for the host.</p>"
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
