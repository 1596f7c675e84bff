"""A script's run on the simulated GPU, sweeps: in the terminal, as pages, as a trace for Perfetto."""

from __future__ import annotations

import csv
import json
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from drkernel.base.files import write_atomic
from drkernel.report.anatomy import Anatomy, Marks, anatomy, hottest, roofline_plot, time_stack
from drkernel.report.render import Span, excerpt, render, tracks
from drkernel.report.verdict import indented, profile_table
from drkernel.sim.script import LaunchRow, ScriptReport, TraceSpan, WithoutData
from drkernel.sim.sweep import Configuration, Sweep
from drkernel.verdict import Profile, Verdict
from drkernel.view import DeviceTime, Figure, duration, limit, percent, quote_line, size
from ttir_executor.compiled import SimFinding

# ---- Traces in the JSON format that Chrome's tracing page and Perfetto open
#
# A script's trace is the modelled clock. A verdict keeps no order, only the time of each kernel in one call, so that
# its bars are laid end to end, the costliest first, and the track says so.


TRACKS = {"custom": "own kernels", "library": "PyTorch", "copy": "copies"}


def trace_of_run(report: ScriptReport) -> dict[str, Any]:
    """Return the trace of a script that was run with ``trace=True``: a track for own kernels, PyTorch and copies."""
    owners = list(TRACKS)
    events = [_name("process_name", 1, 0, f"{report.gpu}, {report.device} (modelled)")]
    events += [_name("thread_name", 1, index, TRACKS[owner]) for index, owner in enumerate(owners, 1)]
    events += [
        _bar(span.name, span.start, span.seconds, 1, owners.index(span.owner) + 1, _facts(span))
        for span in report.spans
    ]
    return _trace(events, "modelled", report.device)


def _facts(span: TraceSpan) -> dict[str, Any]:
    """What Perfetto shows of a slice: grid, configuration, bytes, operations."""
    grid = {} if span.grid is None else {"grid": "x".join(map(str, span.grid))}
    return {"bound": span.bound, **grid, **span.settings, "bytes": span.bytes, "flops": span.flops}


def trace_of_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return the trace of one call of candidate and reference: a process each, with one track."""
    events: list[dict[str, Any]] = []
    kind = "modelled"
    for number, (who, profile) in enumerate(
        (("candidate", verdict.profile), ("reference", verdict.reference_profile)), 1
    ):
        if profile is None:
            continue
        kind = profile.kind
        events.append(_name("process_name", number, 0, f"{who}, {profile.device} ({profile.kind})"))
        events.append(_name("thread_name", number, 1, "one call, by cost (the order of launches is not kept)"))
        events += _laid_out(profile, number)
    return _trace(events, kind, verdict.device)


def _laid_out(profile: Profile, process: int) -> Iterable[dict[str, Any]]:
    start = 0.0
    for row in profile.rows:
        facts = {
            "calls": row.calls,
            "owner": row.owner,
            "share": row.share,
            "bound": row.bound,
            "roofline": row.roofline,
            "bytes": row.bytes,
            "flops": row.flops,
        }
        if row.detail is not None:
            facts |= row.detail.model_dump(include={"programs", "num_warps", "num_stages", "occupancy"})
        yield _bar(row.name, start, row.seconds, process, 1, facts)
        start += row.seconds


def write_trace(path: Path, trace: dict[str, Any]) -> None:
    """Write a trace as JSON. Raises ``OSError``."""
    path.write_text(json.dumps(trace), encoding="utf-8")


def _trace(events: list[dict[str, Any]], kind: str, device: str) -> dict[str, Any]:
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"times": kind, "device": device}}


def _name(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _bar(name: str, start: float, seconds: float, process: int, thread: int, facts: dict[str, Any]) -> dict[str, Any]:
    """Return a bar; the format counts in microseconds."""
    place = {"ts": 1e6 * start, "dur": 1e6 * seconds, "pid": process, "tid": thread}
    return {"ph": "X", "name": name, "cat": "device", **place, "args": facts}


# ---- A script's run on the simulated GPU, in the terminal


COLOURS = {"error": "red", "warning": "yellow"}
BOUNDS = {"memory": "cyan", "compute": "green", "latency": "yellow"}
MAX_ROWS = 40
MAX_PRINTS = 20
MAX_FINDINGS = 256
CONTEXT_LINES = 1
Read = Callable[[str], str]
"""the text of a file; empty where there is none"""


def _read(file: str) -> str:
    return "".join(linecache.getlines(file))


def terminal(report: ScriptReport, read: Read = _read) -> RenderableType:
    """Render a report for a kernel engineer, the most urgent part last (next to the prompt).

    ``read`` opens the files that findings name. A report that comes out of an untrusted process may name any file:
    then it has to be one that knows the script alone.
    """
    return Group(*_parts(report, read))


def _parts(report: ScriptReport, read: Read) -> Iterator[RenderableType]:
    yield _headline(report)
    if report.without_data is not None:
        yield _without_data(report.without_data)
    if report.launches:
        yield Text()
        yield indented(launch_table(report.launches))
        yield from (indented(Text(line, style="yellow")) for line in unexecuted(report.launches))
    if report.prints:
        yield _title("device_print")
        shown = list(report.prints[:MAX_PRINTS])
        if len(report.prints) > MAX_PRINTS:
            shown.append(f"... {len(report.prints) - MAX_PRINTS} more")
        yield indented(Text("\n".join(shown)))
    if report.profile.rows:
        device = DeviceTime.of(report.profile)
        yield _title("Device time", f" {device.about}")
        yield indented(profile_table(device))
    for row in report.kernels[:1]:
        yield _title(f"Where the time of {row.kernel} goes", " (modelled)")
        yield from (indented(hottest(detail)) for detail in (row.detail,) if detail is not None)
    if report.without_data is not None and report.without_data.depends_on_data:
        yield _title("Depends on data", ": these times may be those of another run")
        yield indented(Text("\n".join(report.without_data.depends_on_data), style="yellow"))
    if report.findings:
        yield _title("Findings")
        for finding in report.findings[:MAX_FINDINGS]:
            yield indented(_finding(finding, read))
        if len(report.findings) > MAX_FINDINGS:
            yield indented(Text(f"... {len(report.findings) - MAX_FINDINGS} more", style="dim"))
    if report.error is not None:
        yield from _error(report)
    yield _footer(report)


def _headline(report: ScriptReport) -> Text:
    line = Text("\n")
    line.append(f" {Path(report.script).name} ", style="bold reverse")
    line.append(f"  {report.gpu}, simulated ({report.device})", style="bold")
    launches = sum(row.calls for row in report.launches)
    operators = sum(report.operators.values())
    line.append(f"\n{_count(launches, 'kernel launch', 'kernel launches')}, {_count(operators, 'PyTorch operator')}")
    for direction, times in report.copies.items():
        line.append(f", {_count(times, 'copy', 'copies')} {direction}")
    line.append(f"; {size(report.peak_bytes)} of device memory")
    return line


def _without_data(found: WithoutData) -> Text:
    """Explain a run without data, and how certain its times are."""
    line = Text("No data: outputs hold nothing.", style="bold yellow")
    if found.looked_at < found.programs:
        line.append(
            f" Modelled from a sample of programs ({found.looked_at:,} of {found.programs:,}), "
            f"estimated error {found.error:.1%}.",
            style="yellow",
        )
    elif found.programs:
        line.append(f" All {found.programs:,} programs were counted.", style="yellow")
    return line


@dataclass(frozen=True)
class LaunchView:
    """Launches of one kernel, grid and configuration, in words; time and bytes are those of one call."""

    kernel: str
    grid: str
    calls: str
    time: str
    bytes: str
    rate: str
    """arithmetic rate of what computes, effective bandwidth of the rest"""
    bound: str
    limit: str
    configuration: str
    """constexprs, warps and stages, and the resources that they take on the GPU where known"""

    @classmethod
    def of(cls, row: LaunchRow) -> LaunchView:
        """The row in words."""
        nbytes, rate = row.unique_bytes / row.calls, ""
        if row.seconds:
            computes = row.bound == "compute"
            per_second = (row.flops if computes else row.unique_bytes) / row.seconds
            rate = f"{per_second / 1e12:.3g} TFLOP/s" if computes else f"{per_second / 1e9:.0f} GB/s"
        parts = [f"{name}={value}" for name, value in row.constexprs.items()]
        parts += [_count(row.num_warps, "warp"), _count(row.num_stages, "stage")]
        parts += [_count(row.registers, "register")] if row.registers is not None else []
        parts += [f"{row.spills} B spilled"] if row.spills else []
        parts += [f"{size(row.shared_bytes)} shared"] if row.shared_bytes is not None else []
        parts += [f"{row.occupancy} per SM"] if row.occupancy is not None else []
        return cls(
            row.kernel, re.sub(r"(x1)+$", "", "x".join(map(str, row.grid))), str(row.calls),
            duration(row.seconds / row.calls), size(nbytes), rate, row.bound, limit(row.bound, row.roofline),
            ", ".join(parts),
        )  # fmt: skip


def launch_table(rows: tuple[LaunchRow, ...]) -> Text:
    """Two lines per kernel, grid and configuration, in order of first launch."""
    shown = [LaunchView.of(row) for row in rows[:MAX_ROWS]]
    header = ["kernel", "grid", "calls", "time", "bytes", "rate"]
    cells = [[getattr(row, name) for name in header] for row in shown]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]

    def aligned(line: list[str]) -> list[str]:
        left = [cell.ljust(width) for cell, width in zip(line[:2], widths[:2], strict=True)]
        return left + [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]

    text = Text().append("  ".join([*aligned(header), "bound"]), style="dim")
    for row, line in zip(shown, cells, strict=True):
        name, *rest = aligned(line)
        text.append(f"\n{name}  ", style="bold").append("  ".join(rest) + "  ")
        text.append(row.bound, style=BOUNDS.get(row.bound, "")).append(row.limit.removeprefix(row.bound), style="dim")
        text.append(f"\n  {row.configuration}", style="dim")
    if len(rows) > MAX_ROWS:
        text.append(f"\n... {len(rows) - MAX_ROWS} more", style="dim")
    return text


def unexecuted(rows: tuple[LaunchRow, ...]) -> list[str]:
    """A sentence for each kernel with launches that were only counted."""
    calls: dict[str, int] = {}
    for row in rows:
        calls[row.kernel] = calls.get(row.kernel, 0) + row.unexecuted
    return [
        f"{kernel}: {_count(number, 'long launch', 'long launches')} counted from a sample of programs, not executed: "
        "nothing read the results (--checks full executes all)"
        for kernel, number in calls.items()
        if number
    ]


def _finding(finding: SimFinding, read: Read) -> RenderableType:
    line = Text()
    line.append(f"{finding.severity} ", style=f"bold {COLOURS[finding.severity]}")
    line.append(finding.kind, style="bold")
    if finding.file and finding.line:
        line.append(f"  {Path(finding.file).name}:{finding.line}", style="cyan")
    line.append(f"  in {finding.kernel}")
    if finding.program is not None:
        line.append(f", program {finding.program}")
    if finding.count > 1:
        line.append(f", {finding.count} times")
    detail = finding.message.partition("; kernel ")[0]
    line.append(f"\n{detail}", style=COLOURS[finding.severity])
    quoted = quote_line(read(finding.file), finding.line, CONTEXT_LINES) if finding.file else ""
    return Group(line, *([indented(Text(quoted))] if quoted else []))


def _error(report: ScriptReport) -> Iterator[RenderableType]:
    error = report.error
    assert error is not None
    where = f" at {Path(report.script).name}:{error.line}" if error.line else ""
    yield Text(f"\n{error.type}{where}", style="bold red")
    if error.traceback:
        yield indented(Text(error.traceback.rstrip(), style="dim"))
    message = error.message.strip()
    known = [finding.message for finding in report.findings]  # a fault repeats what is printed above
    lines = [line for line in message.splitlines() if line not in known]
    yield indented(Text("\n".join(lines), style="red"))


def _footer(report: ScriptReport) -> Text:
    errors = sum(finding.severity == "error" for finding in report.findings)
    warnings = len(report.findings) - errors
    line = Text("\n")
    if errors or report.error is not None:
        line.append("FAILED", style="bold red")
    else:
        line.append("ok", style="bold green")
    line.append(f"  {_count(errors, 'error')}, {_count(warnings, 'warning')}")
    line.append(f"; ran in {duration(report.wall_seconds)} here, times above are modelled", style="dim")
    return line


def _count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def _title(text: str, rest: str = "") -> Text:
    return Text("\n").append(text, style="bold").append(rest)


# ---- A script's run on the simulated GPU as one self-contained HTML page


KERNELS = 6
"""most kernels whose source is shown"""
MAX_BARS = 1500
"""most pieces of device work on the timeline"""


def write_page(path: Path, report: ScriptReport) -> None:
    """Write the page of a run; the directory must exist."""
    write_atomic(path, page(report))


def page(report: ScriptReport) -> str:
    """The page as text."""
    profile = _with_details(report)
    return render(
        "sim",
        name=Path(report.script).name,
        report=report.model_copy(update={"profile": profile}),
        numbers=_numbers(report),
        device=DeviceTime.of(profile),
        launches=[LaunchView.of(row) for row in report.launches],
        unexecuted=unexecuted(report.launches),
        found=[(one.severity, one.kind, one.message, None, _excerpt(one.file, one.line)) for one in report.findings],
        lines_of_error=_excerpt(report.script, report.error.line if report.error is not None else None),
        stack=time_stack(profile),
        roofline=roofline_plot(profile),
        timeline=_timeline(report.spans),
        kernels=_anatomies(report, KERNELS, _marked(report)),
    )


def _anatomies(report: ScriptReport, most: int, marks: Marks = MappingProxyType({})) -> list[Anatomy]:
    rows = [(row.detail, row.ttir) for row in report.kernels if row.detail is not None]
    return [anatomy(detail, linecache.getlines, marks, ttir) for detail, ttir in rows[:most]]


def _excerpt(file: str | None, line: int | None) -> list[tuple[int, Markup, bool]]:
    return excerpt(_read(file), line) if file else []


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


def _numbers(report: ScriptReport) -> list[Figure]:
    profile = report.profile
    found = [
        Figure("", duration(profile.elapsed_seconds), "from the first command to the last"),
        Figure("", duration(profile.total_seconds), "of work on the device"),
        Figure("", percent(profile.coverage), "of it in own kernels"),
        Figure("", size(report.peak_bytes), "of device memory"),
    ]
    return found + [Figure("", *_count(len(report.findings), "finding").split())] * bool(report.findings)


def _timeline(spans: Sequence[TraceSpan]) -> Markup:
    """Device work as bars on the modelled clock, a track for each owner."""
    shown = sorted(spans[:MAX_BARS], key=lambda span: span.start)
    if len(shown) < 2:
        return Markup()
    start, end = shown[0].start, max(span.start + span.seconds for span in shown)
    drawn: dict[str, list[Span]] = {TRACKS[owner]: [] for owner in TRACKS if any(s.owner == owner for s in shown)}
    for span in shown:
        at = f"{duration(span.seconds)} at {duration(max(0.0, span.start))}"
        bar = span.start, span.seconds, span.name, f"{span.name}: {at}, {span.bound}-bound", span.owner
        drawn[TRACKS[span.owner]].append(bar)
    left = f" The first {MAX_BARS} of {len(spans)} pieces." if len(spans) > MAX_BARS else ""
    return tracks(drawn, start, end, f"{duration(end - start)} from left to right.{left}")


# ---- Sweeps and comparisons, in the terminal and as pages


def rows_and_columns(found: Sweep) -> tuple[list[str], list[tuple[str, list[Configuration]]]]:
    """The headings of the columns (values of the last axis), and the rows: the other settings and their cells."""
    *others, last = found.axes
    columns = [f"{last}={value}" for value in found.axes[last]]
    rows = []
    for start in range(0, len(found.configurations), len(columns)):
        cells = list(found.configurations[start : start + len(columns)])
        rows.append((", ".join(f"{name}={cells[0].settings[name]}" for name in others), cells))
    return columns, rows


def render_sweep(found: Sweep) -> RenderableType:
    """A table of modelled times, the best marked, and why the others failed."""
    return Group(*_sweep_parts(found))


def _sweep_parts(found: Sweep) -> Iterator[RenderableType]:
    title = f"{Path(found.script).name} on {found.device}"
    kind = "modelled" if found.data else "modelled, without data"
    yield Text(f"\n{title}: device time of own kernels ({kind}); {duration(found.own_seconds)} as it is", style="bold")
    columns, rows = rows_and_columns(found)
    best = found.best
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for name, cells in rows:
        table.add_row(name, *(_cell(cell, best) for cell in cells))
    yield table
    failed: dict[str, list[str]] = {}
    for each in found.configurations:
        if each.failed:
            failed.setdefault(each.failed, []).append(words(each))
    for why, which in failed.items():
        yield Text(f"{'; '.join(which)}: {why}", style="red")
    if best is not None and best.seconds:
        yield Text(f"best: {words(best)}, {found.own_seconds / best.seconds:.2f}x as fast as it is", style="green")
        if found.alike:
            yield Text(f"within the model's error of it: {'; '.join(map(words, found.alike))}", style="yellow")


def _cell(cell: Configuration, best: Configuration | None) -> Text:
    if cell.seconds is None:
        return Text("failed", style="red")
    return Text(duration(cell.seconds), style="bold green" if cell is best else "")


def words(configuration: Configuration) -> str:
    """The settings in words."""
    return ", ".join(f"{name}={value}" for name, value in configuration.settings.items())


# ---- files


def write_rows(path: Path, found: Sweep) -> None:
    """Write a sweep as CSV: the settings, ``seconds`` on the device (empty where it failed), ``failed`` (why)."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([*found.axes, "seconds", "failed"])
        rows.writerows([*one.settings.values(), one.seconds, one.failed] for one in found.configurations)


def write_sweep(path: Path, found: Sweep) -> None:
    """Write the page of a sweep; the directory must exist."""
    columns, rows = rows_and_columns(found)
    times = [each.seconds for each in found.configurations if each.seconds is not None]
    low, high = min(times, default=0.0), max(times, default=0.0)
    best = found.best
    cells = [
        (name, [(cell, ((cell.seconds or low) - low) / ((high - low) or 1.0), cell is best) for cell in row])
        for name, row in rows
    ]
    numbers = [Figure("", duration(found.own_seconds), "as it is")]
    if best is not None and best.seconds:
        ratio = f"{found.own_seconds / best.seconds:.2f}x"
        numbers += [Figure("", duration(best.seconds), words(best)), Figure("", ratio, "as fast")]
        alike = Figure("", str(len(found.alike)), "others within the model's error of it")
        numbers += [alike] if found.alike else []
    failed = [(words(each), each.failed) for each in found.configurations if each.failed]
    name = Path(found.script).name
    text = render("sweep", name=name, found=found, numbers=numbers, columns=columns, rows=cells, failed=failed)
    write_atomic(path, text)
