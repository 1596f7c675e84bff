"""``drkernel report RUN``: the HTML page of a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

HELP = """Make a self-contained HTML page of a run: RUN/report.html.

Works on finished, running and interrupted runs. Exit codes: 0 written, 2 not a run or damaged.

Examples:

  drkernel report runs/quickstart

  drkernel report runs/quickstart --json | jq -r .report
"""


@app.command(help=HELP)
def report(
    run: Annotated[Path, typer.Argument(help="a directory that train, bench or solve made")],
    as_json: Annotated[bool, typer.Option("--json", help="print {'report': PATH} and nothing else")] = False,
) -> None:
    """Parse, write, print."""
    from drkernel.config import ConfigError
    from drkernel.report.run_data import RunError

    try:
        path = _write(run)
    except (RunError, ConfigError) as error:
        print(f"drkernel report: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        print(f"drkernel report: cannot write the page: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print(json.dumps({"report": str(path)}) if as_json else f"wrote {path}")


def _write(run: Path) -> Path:
    """Write the page for the kind of run that the directory holds."""
    from drkernel.report.bench import write_bench_report
    from drkernel.report.run import write_report
    from drkernel.report.solve import write_solve_report

    config = run / "config.yaml"
    text = config.read_text(encoding="utf-8") if config.is_file() else ""
    if "\nkind: bench\n" in text:
        return write_bench_report(run)
    if "\nkind: solve\n" in text:
        return write_solve_report(run)
    return write_report(run)
