"""Sweeps as a heat map, comparisons side by side: HTML."""

from __future__ import annotations

import linecache
from pathlib import Path

from drkernel.base.files import write_atomic
from drkernel.gym.feedback import duration
from drkernel.report.anatomy import anatomy
from drkernel.report.render import render
from drkernel.report.sweep_view import pair_cells, rows_and_columns, troubles, words
from drkernel.sim.script import ScriptReport
from drkernel.sim.sweep import Comparison, Sweep

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
