"""``drkernel sim --sweep`` and ``--compare``: several runs, compared with each other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from drkernel.report.sweep_html import write_comparison, write_sweep
from drkernel.report.sweep_view import render_comparison, render_sweep
from drkernel.sim.gpu.datafree.records import DataFree
from drkernel.sim.sweep import compare, quietly, sweep

INTERRUPTED = 130


def run_sweep(
    file: Path, axes: dict[str, list[int]], args: list[str], gpu: str, budget: int | None, html: Path | None,
    as_json: bool,
) -> NoReturn:  # fmt: skip
    """Run a sweep and print it. Exit code: 0 where a configuration has a time, 1 where none has."""
    try:
        found = sweep(file, axes, args, gpu=gpu, budget_bytes=budget)
    except ValueError as error:
        print(f"drkernel sim: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    print(found.model_dump_json(indent=2)) if as_json else Console(highlight=False).print(render_sweep(found))
    if html is not None:
        write_sweep(html, found)
        print(f"wrote {html}", file=sys.stderr)
    raise SystemExit(0 if found.best is not None else 1)


def run_comparison(
    first: Path, second: Path, args: list[str], gpu: str, checks: str, no_data: bool, budget: int | None,
    html: Path | None, as_json: bool,
) -> NoReturn:  # fmt: skip
    """Run two scripts and print them side by side. Exit code: the worse of theirs."""
    data_free = DataFree.of_script() if no_data else None
    try:
        a, b = (
            quietly(path, path.read_text(encoding="utf-8"), args, gpu=gpu, checks=checks, data_free=data_free,
                    budget_bytes=budget)
            for path in (first, second)
        )  # fmt: skip
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    found = compare(a, b)
    print(found.model_dump_json(indent=2)) if as_json else Console(highlight=False).print(render_comparison(found))
    if html is not None:
        write_comparison(html, found)
        print(f"wrote {html}", file=sys.stderr)
    raise SystemExit(max(a.exit_code, b.exit_code))
