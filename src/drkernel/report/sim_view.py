"""A script's run on the simulated GPU, in the terminal: launches, findings at their source lines, modelled profile."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from drkernel.gym.feedback import duration, percent, size
from drkernel.report.hot_lines import hottest
from drkernel.report.verdict_view import profile_table
from drkernel.sim.script import LaunchRow, ScriptFinding, ScriptReport, WithoutData

COLOURS = {"error": "red", "warning": "yellow"}
BOUNDS = {"memory": "cyan", "compute": "green", "latency": "yellow"}
MAX_ROWS = 40
MAX_PRINTS = 20
MAX_FINDINGS = 256
CONTEXT_LINES = 1
Quote = Callable[[str, int], str]
"""reads a line of a file; empty when there is none"""


def render(report: ScriptReport, quote: Quote = linecache.getline) -> RenderableType:
    """Render a report for a kernel engineer, the most urgent part last (next to the prompt).

    ``quote`` reads the lines that findings name. A report that comes out of an untrusted process may name any file:
    then it has to be one that knows the script alone.
    """
    return Group(*_parts(report, quote))


def _parts(report: ScriptReport, quote: Quote) -> Iterator[RenderableType]:
    yield _headline(report)
    if report.without_data is not None:
        yield _without_data(report.without_data)
    if report.launches:
        yield Text()
        yield _indent(launch_table(report.launches))
        yield from (_indent(Text(line, style="yellow")) for line in unexecuted(report.launches))
    if report.prints:
        yield _title("device_print")
        shown = list(report.prints[:MAX_PRINTS])
        if len(report.prints) > MAX_PRINTS:
            shown.append(f"... {len(report.prints) - MAX_PRINTS} more")
        yield _indent(Text("\n".join(shown)))
    if report.profile.rows:
        busy, elapsed = report.profile.total_seconds, report.profile.elapsed_seconds
        host = f"; host: {report.profile.host}" if report.profile.host else ""
        yield _title(
            f"Modelled time on {report.device}", f": device busy {duration(busy)} of {duration(elapsed)}{host}"
        )
        yield _indent(profile_table(report.profile))
    for row in report.kernels[:1]:
        yield _title(f"Where the time of {row.kernel} goes", " (modelled)")
        yield from (_indent(hottest(detail)) for detail in (row.detail,) if detail is not None)
    if report.without_data is not None and report.without_data.depends_on_data:
        yield _title("Depends on data", ": these times may be those of another run")
        yield _indent(Text("\n".join(report.without_data.depends_on_data), style="yellow"))
    if report.findings:
        yield _title("Findings")
        for finding in report.findings[:MAX_FINDINGS]:
            yield _indent(_finding(finding, quote))
        if len(report.findings) > MAX_FINDINGS:
            yield _indent(Text(f"... {len(report.findings) - MAX_FINDINGS} more", style="dim"))
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


def launch_table(rows: tuple[LaunchRow, ...]) -> Text:
    """Two lines per kernel, grid and configuration, in order of first launch. Time and bytes are those of one call."""
    shown = rows[:MAX_ROWS]
    cells = [[row.kernel, _grid(row.grid), str(row.calls), *_rates(row)] for row in shown]
    header = ["kernel", "grid", "calls", "time", "bytes", "rate"]
    widths = [max(len(line[column]) for line in (header, *cells)) for column in range(len(header))]

    def aligned(line: list[str]) -> list[str]:
        left = [cell.ljust(width) for cell, width in zip(line[:2], widths[:2], strict=True)]
        return left + [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]

    text = Text().append("  ".join([*aligned(header), "bound"]), style="dim")
    for row, line in zip(shown, cells, strict=True):
        name, *rest = aligned(line)
        text.append(f"\n{name}  ", style="bold").append("  ".join(rest) + "  ").append(_bound(row))
        text.append(f"\n  {_configuration(row)}", style="dim")
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


def _rates(row: LaunchRow) -> tuple[str, str, str]:
    """Time, bytes, and the arithmetic rate of what computes or the effective bandwidth of the rest."""
    seconds, nbytes = row.seconds / row.calls, row.unique_bytes / row.calls
    rate = ""
    if row.bound == "compute" and seconds:
        rate = f"{row.flops / row.seconds / 1e12:.3g} TFLOP/s"
    elif seconds:
        rate = f"{nbytes / seconds / 1e9:.0f} GB/s"
    return duration(seconds), size(nbytes), rate


def _configuration(row: LaunchRow) -> str:
    """Constexprs, warps and stages, and the resources they take on the GPU where known."""
    parts = [f"{name}={value}" for name, value in row.constexprs.items()]
    parts += [_count(row.num_warps, "warp"), _count(row.num_stages, "stage")]
    if row.registers is not None:
        parts.append(_count(row.registers, "register"))
    if row.spills:
        parts.append(f"{row.spills} B spilled")
    if row.shared_bytes is not None:
        parts.append(f"{size(row.shared_bytes)} shared")
    if row.occupancy is not None:
        parts.append(f"{row.occupancy} per SM")
    return ", ".join(parts)


def _grid(grid: tuple[int, int, int]) -> str:
    sizes = list(grid)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return "x".join(map(str, sizes))


def _bound(row: LaunchRow) -> Text:
    text = Text(row.bound, style=BOUNDS.get(row.bound, ""))
    if row.roofline is not None and row.bound != "latency":
        text.append(f" {percent(row.roofline)}" if row.roofline <= 1 else " from L2", style="dim")
    return text


def _finding(finding: ScriptFinding, quote: Quote) -> RenderableType:
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
    return Group(line, *_source(finding.file, finding.line, COLOURS[finding.severity], quote))


def _source(file: str | None, line: int | None, colour: str, quote: Quote) -> Iterator[RenderableType]:
    """The line and its neighbours, the line itself marked."""
    if not file or not line:
        return
    quoted = Text()
    for number in range(max(1, line - CONTEXT_LINES), line + CONTEXT_LINES + 1):
        code = quote(file, number).rstrip()
        if not code and number != line:
            continue
        here = number == line
        quoted.append(f"{'>' if here else ' '} {number:4d} | ", style=colour if here else "dim")
        quoted.append(f"{code}\n", style="bold" if here else "dim")
    quoted.rstrip()
    if quoted.plain:
        yield Padding(quoted, (0, 0, 0, 2))


def _error(report: ScriptReport) -> Iterator[RenderableType]:
    error = report.error
    assert error is not None
    where = f" at {Path(report.script).name}:{error.line}" if error.line else ""
    yield Text(f"\n{error.type}{where}", style="bold red")
    if error.traceback:
        yield _indent(Text(error.traceback.rstrip(), style="dim"))
    message = error.message.strip()
    known = [finding.message for finding in report.findings]  # a fault repeats what is printed above
    lines = [line for line in message.splitlines() if line not in known]
    yield _indent(Text("\n".join(lines), style="red"))


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


def _indent(item: RenderableType) -> Padding:
    return Padding(item, (0, 0, 0, 2))
