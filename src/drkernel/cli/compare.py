"""``drkernel compare RUN RUN``: two benchmark runs, task by task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from drkernel.cli import terms
from drkernel.cli.terms import printable

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

HELP = """Compare two benchmark runs on the tasks they share: differences, 95% intervals, a paired test.

A difference is the second run minus the first. Of a run with more turns than the other only as many are compared.
p is the probability of a difference at least this large if the runs were exchangeable task by task (a sign-flip test).
Modelled times are never compared with measured ones.

Exit codes: 0 compared, 2 wrong usage or runs that cannot be compared.

Examples:

  drkernel compare runs/bench-base runs/bench-trained

  drkernel compare runs/a runs/b --json | jq '.rows[] | select(.p < 0.05)'
"""


@app.command(help=HELP)
def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="a run directory")],
    second: Annotated[Path, typer.Argument(metavar="RUN", help="another one")],
    force: Annotated[bool, typer.Option("--force", help="compare runs graded on other terms all the same")] = False,
    all_turns: Annotated[bool, typer.Option("--all-turns", help="compare all turns of a run that has more")] = False,
    seed: Annotated[int, typer.Option(help="of the resampling")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON and nothing else")] = False,
) -> None:
    """Parse, compare, print."""
    from drkernel.config import ConfigError
    from drkernel.solve.paired import compare as compared

    try:
        result = compared(first, second, seed=seed, force=force, all_turns=all_turns)
    except ConfigError as error:
        terms.fail("compare", str(error))
    if as_json:
        print(json.dumps(result))
    else:
        _show(result)


def _show_run(console: Any, name: str, run: dict[str, Any]) -> None:
    """Print a run's name and model, how many of its turns are compared, and at which sizes its answers were timed."""
    from drkernel.episode.sizes import size_lines

    part = f"the first {run['turns_compared']} of " if run["turns_compared"] < run["turns"] else ""
    console.print(f"{name + ':':<8}{run['run']} ({run['model']}), {part}{run['turns']} turns, {run['samples']} samples")
    for line in size_lines(run["sizes"]):
        console.print(f"        [dim]{escape(printable(line))}[/]")


def _show(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from drkernel.episode.metrics import baseline_name

    console = Console(highlight=False)
    for name in ("first", "second"):
        _show_run(console, name, result[name])
    console.print(f"{result['tasks']} tasks in both; times {result['timing_kind']} on {result['device']}, "
                  f"against {baseline_name(result['baseline'])}")  # fmt: skip
    if result["timed_at_other_sizes"]:
        count = len(result["timed_at_other_sizes"])
        console.print(f"[yellow]{count} of these tasks were timed at other sizes in one run than in the other[/]")
    if result["first"]["turns_compared"] != result["second"]["turns_compared"]:
        console.print("[yellow]the runs differ in their number of turns: more turns are more tries[/]")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "first", "second", "difference", "95% interval", "p"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for row in result["rows"]:
        share = "reward" not in row["figure"]
        scale, unit = (100, "%") if share else (1, "")
        colour = (
            "" if row["p"] >= 0.05 else ("green" if (row["difference"] > 0) != ("hack" in row["figure"]) else "red")
        )
        difference = f"{scale * row['difference']:+.1f}" if share else f"{row['difference']:+.3f}"
        digits = 1 if share else 3
        table.add_row(
            row["figure"],
            f"{scale * row['first']:.{digits}f}{unit}",
            f"{scale * row['second']:.{digits}f}{unit}",
            f"[{colour}]{difference}[/]" if colour else difference,
            "" if row["low"] is None else f"{scale * row['low']:+.{digits}f} to {scale * row['high']:+.{digits}f}",
            f"{row['p']:.3f}" if row["p"] >= 0.001 else "<0.001",
        )
    console.print(table)
    ratio = result["speedup_ratio"]
    if ratio is not None:
        known = "" if ratio["low"] is None else f"{ratio['low']:.2f} to {ratio['high']:.2f}, "
        said = f"the second {ratio['ratio']:.2f}x as fast as the first ({known}p {ratio['p']:.3f})"
        console.print(f"solved by both: {ratio['tasks']} tasks, {said}")
