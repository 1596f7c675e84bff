"""Commands on finished runs: ``drkernel compare``, ``drkernel export``, ``drkernel report``."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.markup import escape

from drkernel.cli.options import Fields, command_line, spread
from drkernel.cli.terms import output, write_page
from drkernel.config import ConfigError
from drkernel.solve.export import ExportFilter, tokenizer_counter, write_verdicts
from drkernel.solve.export import export as write
from drkernel.verdict import Status, printable
from drkernel.view import counts

compare_app = command_line()

COMPARE_HELP = """Compare benchmark runs on the tasks they share: differences, 95% intervals, a paired test.

A difference is the later run minus the first. Of a run with more turns than the other only as many are compared.
p is the probability of a difference at least this large if the runs were exchangeable task by task (a sign-flip test).
Modelled times are never compared with measured ones.

--html writes a page: a leaderboard of the runs, their curves on common charts, the differences. It also takes runs of
'drkernel train', whose evaluations are drawn by step.

Exit codes: 0 compared, 2 wrong usage or runs that cannot be compared.

Examples:

  drkernel compare runs/bench-base runs/bench-trained

  drkernel compare runs/a runs/b runs/c --html board.html

  drkernel compare runs/a runs/b --json | jq '.rows[] | select(.p < 0.05)'
"""


@compare_app.command(help=COMPARE_HELP)
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="run directories")],
    force: Annotated[bool, typer.Option("--force", help="compare runs graded on other terms all the same")] = False,
    all_turns: Annotated[bool, typer.Option("--all-turns", help="compare all turns of a run that has more")] = False,
    html: Annotated[Path | None, typer.Option(help="also write a page: leaderboard, curves, differences")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print JSON and nothing else; a list for several runs")
    ] = False,
) -> None:
    """Parse, compare, print."""
    from drkernel.report.bench import write_board
    from drkernel.report.run import kind_of
    from drkernel.solve.bench import compare as compared

    if len(runs) < 2:
        raise ConfigError("compare takes two runs or more")
    trained = html is not None and all(kind_of(run) == "train" for run in runs)
    later = () if trained else runs[1:]
    results = [compared(runs[0], run, force=force, all_turns=all_turns) for run in later]
    if as_json:
        print(json.dumps(results[0] if len(results) == 1 else results))
    else:
        for result in results:
            _show(result)
    if html is not None:
        write_board(html, runs, results)
        print(f"wrote {html}", file=sys.stderr)


def _show_run(console: Any, name: str, run: dict[str, Any]) -> None:
    """Print a run's name and model, how many of its turns are compared, and at which sizes its answers were timed."""
    from drkernel.episode.metrics import size_lines

    part = f"the first {run['turns_compared']} of " if run["turns_compared"] < run["turns"] else ""
    console.print(f"{name + ':':<8}{run['run']} ({run['model']}), {part}{run['turns']} turns, {run['samples']} samples")
    for line in size_lines(run["sizes"]):
        console.print(f"        [dim]{escape(printable(line, lines=False))}[/]")


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from drkernel.episode.metrics import baseline_name
    from drkernel.report.bench import difference

    console = output()
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
        better = (row["difference"] > 0) != ("hack" in row["figure"])
        style = "" if row["p"] >= 0.05 else "green" if better else "red"
        table.add_row(*(Text(cell, style=style * (k == 3)) for k, cell in enumerate(difference(row))))
    console.print(table)
    ratio = result["speedup_ratio"]
    if ratio is not None:
        known = "" if ratio["low"] is None else f"{ratio['low']:.2f} to {ratio['high']:.2f}, "
        said = f"the second {ratio['ratio']:.2f}x as fast as the first ({known}p {ratio['p']:.3f})"
        console.print(f"solved by both: {ratio['tasks']} tasks, {said}")


# ---- ``drkernel export RUN...``: trajectories as data for fine-tuning


export_app = command_line()

EXPORT = """Write the conversations of bench and solve runs as chat data: one row per conversation, each solution once.

A row ends with the best answer of a trajectory that passes the filters. Trajectories with an answer condemned
as a hack never pass, unless --allow-hacks. The JSONL is what the sft stage of 'drkernel train' reads.

Exit codes: 0 written, 1 nothing passed, 2 wrong usage.

Examples:

  drkernel export runs/bench-NAME --out data/sft.jsonl --min-speedup 1.2 --min-coverage 0.5

  drkernel export runs/a runs/b --out data/sft.parquet --tokenizer Qwen/Qwen3-8B --max-tokens 16384

  drkernel export runs/a runs/b --out verdicts.csv   every verdict, a row an answer
"""


@export_app.command(help=EXPORT)
@spread
def export(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories of bench or solve")],
    out: Annotated[Path, typer.Option(help="FILE.jsonl, FILE.parquet, or FILE.csv for all verdicts")],
    wanted: Annotated[
        ExportFilter, Fields("end", "min_speedup", "min_coverage", "without", "allow_hacks", "max_tokens")
    ] = ExportFilter(),
    status: Annotated[list[str] | None, typer.Option(help="statuses that pass, or 'any' (default: correct)")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="count tokens with this tokenizer (default: estimate)")] = None,
    no_reasoning: Annotated[bool, typer.Option("--no-reasoning", help="take <think> parts off the answers")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON and nothing else")] = False,
) -> None:
    """Parse, write, print."""
    if out.suffix == ".csv":
        count_rows = write_verdicts(runs, out)
        print(json.dumps({"verdicts": count_rows}) if as_json else f"{out}: {count_rows} verdicts")
        raise SystemExit(0 if count_rows else 1)
    statuses = tuple(status) if status else ("correct",)
    if unknown := {*statuses} - {"any", *(known := get_args(Status))}:
        raise ConfigError(f"--status {min(unknown)}: it is one of any, {', '.join(known)}")
    passing = {"status": () if "any" in statuses else statuses, "keep_reasoning": not no_reasoning}
    wanted = wanted.model_copy(update=passing)
    count = None if tokenizer is None else tokenizer_counter(tokenizer)
    summary = write(runs, out, wanted, count)
    if as_json:
        print(json.dumps(summary.model_dump()))
    else:
        about = "" if count is not None else "about "
        print(f"{out}: {summary.rows} conversations from {summary.tasks} tasks, {about}{summary.tokens:,} tokens")
        if summary.left_out:
            print("left out: " + counts(summary.left_out))
    raise SystemExit(0 if summary.rows else 1)


# ---- ``drkernel report RUN``: the HTML page of a run


report_app = command_line()

REPORT_HELP = """Make a self-contained HTML page of a run: RUN/report.html.

Works on finished, running and interrupted runs. Exit codes: 0 written, 2 not a run or damaged.

Examples:

  drkernel report runs/quickstart

  drkernel report runs/quickstart --json | jq -r .report
"""


@report_app.command(help=REPORT_HELP)
def report(
    run: Annotated[Path, typer.Argument(help="a directory that train, bench or solve made")],
    as_json: Annotated[bool, typer.Option("--json", help="print {'report': PATH} and nothing else")] = False,
) -> None:
    """Parse, write, print."""
    path = write_page(run)
    print(json.dumps({"report": str(path)}) if as_json else f"wrote {path}")
