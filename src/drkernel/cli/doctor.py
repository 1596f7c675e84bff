"""``drkernel doctor``: report what this machine can do, and what is missing."""

from __future__ import annotations

import json
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

MARKS = {"ok": ("green", "ok"), "limited": ("yellow", "limited"), "missing": ("red", "MISSING")}

HELP = """Report what this machine can do, and what is missing.

Starts a sandbox and grades one small kernel in it, so that the report is based on a trial. Exit codes: 0 candidates can
be graded here, 1 something that is necessary is missing.
"""


@app.command(help=HELP)
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="print the checks as JSON and nothing else")] = False,
) -> None:
    """Examine, print."""
    from drkernel.gym.doctor import examine

    checks = examine()
    if as_json:
        print(json.dumps([check.model_dump() for check in checks], indent=2))
    else:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for check in checks:
            colour, word = MARKS[check.level]
            note = Text(check.detail)
            if check.needed_for:
                note.append(f"  ({check.needed_for})", style="dim")
            table.add_row(Text(word, style=f"bold {colour}"), check.name, note)
        Console(highlight=False).print(table)
    raise SystemExit(1 if any(check.level == "missing" for check in checks) else 0)
