"""A verdict in the terminal, and as one self-contained HTML page: no script, no network, every text escaped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from drkernel.base.files import write_atomic
from drkernel.gym.request import EvalRequest
from drkernel.report.anatomy import anatomy, roofline_plot, time_stack
from drkernel.report.render import COLOURS, STATUSES, excerpt, render, shown_findings, tracks
from drkernel.task import sized_reference
from drkernel.verdict import OWN_FILE, Verdict
from drkernel.view import DeviceTime, VerdictView, duration, quote_line

SEVERITY = {"hack": "magenta", "bug": "red", "note": "cyan"}
BAR = 14


def terminal(verdict: Verdict, source: str | None = None) -> RenderableType:
    """Render the parts that a person wants to know first. ``source`` is the candidate; with it, errors quote their
    line."""
    return Group(*_parts(verdict, source))


def _parts(verdict: Verdict, source: str | None) -> Iterator[RenderableType]:
    view = VerdictView.of(verdict)
    yield _headline(verdict, view)
    if verdict.error is not None:
        yield Text(f"\n{view.error}", style="red")
        if quoted := quote_line(source, verdict.error.line):
            yield indented(Text(quoted))
        elif verdict.error.traceback:
            yield indented(Text(verdict.error.traceback.rstrip(), style="dim"))
    elif verdict.status in ("incorrect", "hack") and view.wrong:
        yield Text(view.wrong, style="red")
    if view.findings:
        table = Table.grid(padding=(0, 1))
        for column in ({"no_wrap": True}, {"no_wrap": True, "style": "bold"}, {"overflow": "fold"}):
            table.add_column(**column)  # type: ignore[arg-type]
        for found, text in view.findings:
            table.add_row(Text(found.severity, style=f"bold {SEVERITY[found.severity]}"), found.kind, Text(text))
        yield indented(table)
    for title, device in (("\nOne call", view.profile), ("Reference", view.profile and view.reference)):
        if device is not None:
            yield Text(f"{title} {device.about}", style="bold")
            yield indented(profile_table(device))
    if verdict.not_checked:
        yield Text(f"\nNot checked on {verdict.device}", style="yellow")
        yield Text("\n".join(f"  {item.check}: {item.why}" for item in verdict.not_checked), style="dim")
    yield _footer(verdict)


def _headline(verdict: Verdict, view: VerdictView) -> Text:
    status = f" {verdict.status.upper().replace('_', ' ')} "
    line = Text().append(status, style=f"bold reverse {STATUSES[verdict.status].colour}")
    line.append(f"  {verdict.task_id}", style="bold")
    fast = verdict.is_correct and verdict.speedup is not None and verdict.speedup.low > 1
    style = "bold green" if fast else "bold"
    figures = [Text.assemble(f"{one.name} ", (one.value, style), f" {one.note}") for one in view.figures]
    first = 1 if view.figure("speedup") else 0
    sizes = Text(view.sizes, style="yellow" if verdict.untimed else "")
    lines = [*figures[:first], Text(view.host, style="yellow"), sizes, *figures[first:], Text(view.exactness)]
    return Text("\n").join([line, *(one for one in lines if one.plain)])


def profile_table(device: DeviceTime, rows: int = 10) -> RenderableType:
    """One bar per kernel or operator, the longest first; last what limits it, and how much of the roofline it has."""
    if not device.rows:
        return Text("no device work", style="dim")
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    for at, justify in enumerate(("left", "left", "left", "right", "right", "right", "left")):
        whole = at not in (0, 1, 6)  # in a narrow terminal bars are cut, names and limits break, and figures stay whole
        table.add_column(justify=justify, no_wrap=whole, overflow="fold" if at else "crop")  # type: ignore[arg-type]
    for row in device.rows[:rows]:
        colour = COLOURS[row.owner]
        table.add_row(
            bar(row.portion, colour), Text(row.name, style="bold" if row.owner == "custom" else ""),
            Text(row.whose, style=colour), row.calls, row.time, row.share, Text(row.limit, style="dim"),
        )  # fmt: skip
    if rest := device.rest(rows):
        table.add_row("", Text(rest[0], style="dim"), "", "", rest[1], "", "")
    return table


def bar(share: float, colour: str, width: int = BAR) -> Text:
    """A horizontal bar in eighths of a character."""
    eighths = max(1, round(min(1.0, share) * width * 8)) if share > 0 else 0
    text = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
    return Text(text.ljust(width), style=colour)


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


def indented(item: RenderableType) -> Padding:
    """Two columns to the right."""
    return Padding(item, (0, 0, 0, 2), expand=False)


# ---- A verdict as one self-contained HTML page


def write_page(path: Path, request: EvalRequest, verdict: Verdict) -> None:
    """Write the page of the ``verdict`` on a request; the directory must exist."""
    write_atomic(path, page(request, verdict))


def page(request: EvalRequest, verdict: Verdict, before: Markup = Markup(), after: Markup = Markup()) -> str:
    """The page as text; the reference is shown at the size that was asked for.

    ``before`` and ``after`` are HTML that a caller adds at the top and before the sources.
    """
    view, candidate = VerdictView.of(verdict), request.candidate
    return render(
        "verdict",
        verdict=verdict,
        view=view,
        sentences=[*filter(None, (view.host, view.sizes, view.exactness, view.wrong))],
        found=shown_findings(verdict, candidate),
        lines_of_error=excerpt(candidate, verdict.error.line if verdict.error is not None else None),
        against=against(view),
        candidate=candidate,
        reference=sized_reference(request.task, request.settings.profile),
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


# ---- candidate above reference on one scale of time


def against(view: VerdictView) -> Markup:
    """Both profiles' device time, the costliest first, with the host's waits at the end; empty where one is missing."""
    if view.profile is None or view.reference is None:
        return Markup()
    ours = view.profile.profile
    longest = max(ours.elapsed_seconds, view.reference.profile.elapsed_seconds)
    if longest <= 0:
        return Markup()
    drawn = {}
    for name, device in (("candidate", view.profile), ("reference", view.reference)):
        spans, start = [], 0.0
        for row in device.rows:
            spans.append((start, row.seconds, row.name, f"{row.name}: {row.time}, {row.share}", row.owner))
            start += row.seconds
        waits = device.profile.elapsed_seconds - start
        if waits > 0.005 * longest:
            name_of = "waiting for the host"
            spans.append((start, waits, "", f"{name_of}: {duration(waits)}", "line"))
        drawn[f"{name} {duration(device.profile.elapsed_seconds)}"] = spans
    told = f"One call of each on one scale ({ours.kind}, {ours.device}), the costliest first"
    return tracks(drawn, 0.0, longest, f"{told}; grey: the device waits for the host.")
