"""The output of ``drkernel bench``: a line while it runs, tables when it is done."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from drkernel.cli.terms import printable
from drkernel.episode.meter import money
from drkernel.episode.metrics import baseline_name
from drkernel.episode.sizes import size_lines
from drkernel.gym.feedback import times

if TYPE_CHECKING:
    from drkernel.episode.journal import JournalEntry
    from drkernel.episode.meter import Meter
    from drkernel.solve.bench import Bench, BenchRun


class LiveBench:
    """A progress bar on a terminal; otherwise a line for every ended trajectory."""

    def __init__(self, run: BenchRun, meter: Meter, quiet: bool):
        self.run, self.meter, self.quiet = run, meter, quiet
        self.terminal = sys.stderr.isatty()
        keys = run.bench.keys
        total, done = len(keys), sum(map(run.bench.played.complete, keys))
        columns = (
            TextColumn("trajectories"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )  # fmt: skip
        self.bar = Progress(*columns, console=Console(stderr=True), disable=quiet or not self.terminal)
        self.line = self.bar.add_task("", total=total, completed=done)
        self.counts: Counter[str] = Counter()
        if done and not quiet:
            print(f"{done} of {total} trajectories are there already", file=sys.stderr)

    def __call__(self, row: JournalEntry) -> None:
        """One line of the journal."""
        if row.turn is not None:
            self.counts[row.turn.status] += 1
            words = " ".join(f"{name} {count}" for name, count in self.counts.most_common(4))
            tokens = f"{self.meter.spending.usage.total:,} tokens"
            cost = "" if self.meter.dollars is None else " " + money(self.meter.dollars)
            troubles = self.meter.spending.troubles()
            trouble = f" | failed and asked again: {troubles}" if troubles else ""
            self.bar.update(self.line, description=f"{words} | {tokens}{cost}{trouble}")
            return
        self.bar.advance(self.line)
        if not self.quiet and not self.terminal:
            detail = f" ({printable(row.detail)})" if row.detail else ""
            print(f"{row.task_id} sample {row.sample}: ended by {row.end}{detail}", file=sys.stderr)

    def __enter__(self) -> LiveBench:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        troubles = self.meter.spending.troubles()
        if troubles and not self.quiet:
            print(f"requests that failed and were asked again: {troubles}", file=sys.stderr)


def show(summary: dict[str, Any], bench: Bench, directory: Path) -> None:
    """Print the tables."""
    console = Console(highlight=False)
    config = bench.config
    sizes = f"{len(bench.tasks)} tasks x {config.samples} samples x {config.episode.turns} turns"
    console.print(f"[bold]{bench.model}[/] on {config.tasks}: {sizes}", soft_wrap=True)
    if summary["left_out"]:
        console.print(f"{summary['left_out']} tasks are left out; resolved.yaml says why for each")
    if "last" in summary:
        console.print(fast_table(summary))
        console.print(f"[dim]{terms_of(summary)}[/]", soft_wrap=True)
        for line in size_lines(summary["sizes"]):
            console.print(f"[dim]{escape(printable(line))}[/]", soft_wrap=True)
        console.print()
        console.print(details_table(summary))
    for reason, count in summary["incomplete_because"].items():
        console.print(f"[bold red]{count} trajectories are missing:[/] {escape(printable(reason))}", soft_wrap=True)
    console.print(f"[dim]{directory}/report.html, summary.json[/]", soft_wrap=True)


def fast_table(summary: dict[str, Any]) -> Table:
    """Return fast_p of every turn, of the last one and of the best, with 95% intervals over tasks."""
    names = list(summary["last"])
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in names:
        table.add_column("correct" if name == "fast_0" else name, justify="right", no_wrap=True)
    if len(summary["per_turn"]) > 1:
        for number, row in enumerate(summary["per_turn"], 1):
            table.add_row(f"turn {number}", *(f"{100 * row['last'][name]['value']:.1f}%" for name in names))
    for label, key in (("last turn", "last"), ("best turn", "best")):
        table.add_row(f"[bold]{label}[/]", *(_estimate(summary[key][name]) for name in names))
    return table


def terms_of(summary: dict[str, Any]) -> str:
    """Return the terms that the table's figures depend on."""
    kind = f"times {summary['timing_kind']} on {summary['device']}, against {baseline_name(summary['baseline'])}"
    return f"{kind}; 95% intervals over tasks"


def _estimate(value: dict[str, float]) -> str:
    return f"{100 * value['value']:.1f}% [dim]{100 * value['low']:.0f}-{100 * value['high']:.0f}[/]"


def details_table(summary: dict[str, Any]) -> Table:
    """Return the table of all figures except fast_p."""
    table = Table.grid(padding=(0, 2))
    for k, row in summary["at_k"].items():
        if len(summary["at_k"]) > 1:
            shares = [f"{name.replace('@k', '@' + k)} {percent(row[name])}" for name in ("pass@k", "fast_1@k")]
            shares += [f"fast_1.2@{k} {percent(row['fast_1.2@k'])}", f"best speedup {row['best_speedup@k']:.2f}x"]
            table.add_row(f"best of {k}", ", ".join(shares))
    if summary["coverage"] is not None:
        table.add_row("coverage", f"{percent(summary['coverage'])} of device time in own kernels (correct answers)")
    if summary["speedup_geomean"] is not None:
        table.add_row("speedup", f"{times(summary['speedup_geomean'])}x geometric mean of the best correct answers "
                      f"({summary['timing_kind']})")  # fmt: skip
    hacks = summary["hacks"]
    kinds = ", ".join(f"{name} {count}" for name, count in hacks["by_finding"].items())
    shares = [f"{percent(hacks['last']['value'])} of last turns"]
    shares += [f"{percent(hacks['ever']['value'])} of trajectories at some turn"]
    table.add_row("hacks", ", ".join(shares) + (f": {kinds}" if kinds else ""))
    table.add_row("last turns", _counts(summary["status_last"]))
    empty = f"; {summary['answers_without_code']} without code" if summary["answers_without_code"] else ""
    table.add_row("all answers", _counts(summary["status_all"]) + empty)
    usage = summary["usage"]
    about = "about " if usage["estimated"] else ""
    parts = [f"{about}{usage['prompt']:,} read ({usage['cached']:,} cached)", f"{about}{usage['completion']:,} written"]
    parts += [] if summary["dollars"] is None else [money(summary["dollars"])]
    table.add_row("tokens", ", ".join(parts))
    if summary["cut_off_answers"]:
        table.add_row("cut off", f"{summary['cut_off_answers']} answers by the token budget of one answer")
    return table


def percent(share: float) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{100 * share:.1f}%"


def _counts(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(values.items(), key=lambda item: -item[1]))
