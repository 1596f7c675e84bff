"""Sweeps and comparisons, in the terminal and as pages."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from drkernel.base.files import write_atomic
from drkernel.gym.feedback import duration
from drkernel.report.anatomy import anatomy
from drkernel.report.render import render
from drkernel.sim.script import LaunchRow, ScriptReport
from drkernel.sim.sweep import Comparison, Configuration, Sweep, device_time, own_time


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


def _cell(cell: Configuration, best: Configuration | None) -> Text:
    if cell.seconds is None:
        return Text("failed", style="red")
    return Text(duration(cell.seconds), style="bold green" if cell is best else "")


def words(configuration: Configuration) -> str:
    """The settings in words."""
    return ", ".join(f"{name}={value}" for name, value in configuration.settings.items())


def render_comparison(found: Comparison) -> RenderableType:
    """Two scripts side by side: a row for each pair of launches, then the total."""
    left, right = (Path(report.script).name for report in (found.a, found.b))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name, justify in (("kernel", "left"), (left, "right"), (right, "right"), ("", "right"), ("differs in", "left")):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for pair in found.pairs:
        table.add_row(*pair_cells(pair.a, pair.b))
    totals = [(own_time(report), device_time(report)) for report in (found.a, found.b)]
    for name, (a, b) in zip(("own kernels", "all device work"), zip(*totals, strict=True), strict=True):
        table.add_row(Text(name, style="bold"), duration(a), duration(b), ratio(a, b), "")
    parts: list[RenderableType] = [Text(f"\n{found.a.device}, modelled", style="bold"), table]
    for name, report in ((left, found.a), (right, found.b)):
        parts += [Text(f"{name}: {text}", style="red") for text in troubles(report)]
    return Group(*parts)


def pair_cells(a: LaunchRow | None, b: LaunchRow | None) -> list[str]:
    """Kernel, time in the first script, in the second, their ratio, what differs."""
    seconds = [row.seconds if row is not None else None for row in (a, b)]
    names = list(dict.fromkeys(row.kernel for row in (a, b) if row is not None))
    times = [duration(value) if value is not None else "" for value in seconds]
    both = ratio(seconds[0], seconds[1]) if seconds[0] is not None and seconds[1] is not None else ""
    return [" / ".join(names), *times, both, differences(a, b)]


def differences(a: LaunchRow | None, b: LaunchRow | None) -> str:
    """The differences between two launches, in words."""
    if a is None or b is None:
        return "only one has it"
    facts = [
        {**row.constexprs, "grid": "x".join(map(str, row.grid)), "warps": row.num_warps, "stages": row.num_stages,
         "calls": row.calls, "bound": row.bound}
        for row in (a, b)
    ]  # fmt: skip
    names = [name for name in dict.fromkeys([*facts[0], *facts[1]]) if facts[0].get(name) != facts[1].get(name)]
    return ", ".join(f"{name} {facts[0].get(name, 'none')} -> {facts[1].get(name, 'none')}" for name in names)


def ratio(a: float, b: float) -> str:
    """How many times as fast the second is."""
    return f"{a / b:.2f}x" if b else ""


def troubles(report: ScriptReport) -> list[str]:
    """Error and findings of a run, in a line each."""
    found = [f"{report.error.type}: {report.error.message.splitlines()[0]}"] if report.error is not None else []
    return found + [finding.message for finding in report.findings if finding.severity == "error"]


# ---- pages


KERNELS = 3
"""most kernels of each script whose source is shown"""


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
    numbers = [(duration(found.own_seconds), "as it is")]
    if best is not None and best.seconds:
        numbers += [(duration(best.seconds), words(best)), (f"{found.own_seconds / best.seconds:.2f}x", "as fast")]
    failed = [(words(each), each.failed) for each in found.configurations if each.failed]
    name = Path(found.script).name
    text = render("sweep", name=name, found=found, numbers=numbers, columns=columns, rows=cells, failed=failed)
    write_atomic(path, text)


def write_comparison(path: Path, found: Comparison) -> None:
    """Write the page of a comparison; the directory must exist."""
    reports = (found.a, found.b)
    names = [Path(report.script).name for report in reports]
    text = render(
        "compare",
        found=found,
        names=names,
        rows=[pair_cells(pair.a, pair.b) for pair in found.pairs],
        troubles=[(name, line) for name, report in zip(names, reports, strict=True) for line in troubles(report)],
        sides=[(name, _kernels(report)) for name, report in zip(names, reports, strict=True)],
    )
    write_atomic(path, text)


def _kernels(report: ScriptReport) -> list:
    details = [row.detail for row in report.kernels[:KERNELS] if row.detail is not None]
    return [anatomy(detail, linecache.getlines) for detail in details]
