"""``drkernel bench``: measure how good a model is at writing kernels."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from drkernel.cli import terms
from drkernel.cli.options import Fields, Graders, command_line, spread
from drkernel.cli.terms import LivePage
from drkernel.episode.meter import money
from drkernel.episode.metrics import baseline_name, size_lines
from drkernel.verdict import printable
from drkernel.view import counts, times

if TYPE_CHECKING:
    from drkernel.episode.meter import JournalEntry, Meter
    from drkernel.solve.bench import Bench, BenchRun
    from drkernel.solve.config import BenchConfig, PreparedTasks


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
        self.page = LivePage(run.directory)
        if done and not quiet:
            print(f"{done} of {total} trajectories are there already", file=sys.stderr)

    def __call__(self, row: JournalEntry) -> None:
        """One line of the journal."""
        self.page()
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
            detail = f" ({printable(row.detail, lines=False)})" if row.detail else ""
            print(f"{row.task_id} sample {row.sample}: ended by {row.end}{detail}", file=sys.stderr)

    def __enter__(self) -> LiveBench:
        self.bar.start()
        self.page()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        troubles = self.meter.spending.troubles()
        if troubles and not self.quiet:
            print(f"requests that failed and were asked again: {troubles}", file=sys.stderr)


def show(summary: dict[str, Any], bench: Bench, directory: Path) -> None:
    """Print the tables."""
    console = terms.output()
    config = bench.config
    sizes = f"{len(bench.tasks)} tasks x {config.samples} samples x {config.episode.turns} turns"
    console.print(f"[bold]{bench.model}[/] on {config.tasks}: {sizes}", soft_wrap=True)
    if summary["left_out"]:
        console.print(f"{summary['left_out']} tasks are left out; resolved.yaml says why for each")
    if "last" in summary:
        console.print(fast_table(summary))
        console.print(f"[dim]{terms_of(summary)}[/]", soft_wrap=True)
        for line in size_lines(summary["sizes"]):
            console.print(f"[dim]{escape(printable(line, lines=False))}[/]", soft_wrap=True)
        console.print()
        console.print(details_table(summary))
    for reason, count in summary["incomplete_because"].items():
        console.print(
            f"[bold red]{count} trajectories are missing:[/] {escape(printable(reason, lines=False))}", soft_wrap=True
        )
    console.print(f"[dim]{directory}/report.html, summary.json[/]", soft_wrap=True)


def fast_table(summary: dict[str, Any]) -> Table:
    """Return fast_p of every turn, of the last one and of the best, with 95% intervals over tasks."""
    from drkernel.report.bench import fast_rows

    rows = fast_rows(summary)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", *rows[0][1]):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for label, estimates in rows:
        table.add_row(label, *(f"{value} [dim]{escape(interval)}[/]" for value, interval in estimates.values()))
    return table


def terms_of(summary: dict[str, Any]) -> str:
    """Return the terms that the table's figures depend on."""
    kind = f"times {summary['timing_kind']} on {summary['device']}, against {baseline_name(summary['baseline'])}"
    return f"{kind}; 95% intervals over tasks"


def details_table(summary: dict[str, Any]) -> Table:
    """Return the table of all figures except fast_p."""
    from drkernel.report.bench import figures, share

    table = Table.grid(padding=(0, 2))
    for k, row in summary["at_k"].items() if len(summary["at_k"]) > 1 else ():
        shares = [f"{name.replace('@k', '@' + k)} {share(row[name])}" for name in ("pass@k", "fast_1@k", "fast_1.2@k")]
        table.add_row(f"best of {k}", f"{', '.join(shares)}, best speedup {times(row['best_speedup@k'])}x")
    for one in figures(summary):
        table.add_row(one.name, escape(one.text))
    table.add_row("last turns", counts(summary["status_last"]))
    empty = f"; {summary['answers_without_code']} without code" if summary["answers_without_code"] else ""
    table.add_row("all answers", counts(summary["status_all"]) + empty)
    if summary["cut_off_answers"]:
        table.add_row("cut off", f"{summary['cut_off_answers']} answers by the token budget of one answer")
    return table


# ---- ``drkernel bench``: measure how good a model is at writing kernels


app = command_line()

HELP = f"""Benchmark a model: every task, several samples, several turns, graded by the judge.

Answers are written as they arrive. Running the same command again resumes an interrupted run, even after kill -9, and
requests no answer twice. Results are in DIR/summary.json and DIR/report.html.

The terms are the keys of one config: drkernel bench [CONFIG.yaml] [KEY=VALUE ...]. '--KEY VALUE' is equivalent, and a
key may be shortened to a unique ending (--turns 3 is episode.turns=3). DIR/config.yaml is such a file.

Exit codes: 0 every trajectory is complete, 1 some are not (the same command tries them again), 2 wrong usage,
130 interrupted.

Examples:

  drkernel bench --model openai:qwen3-8b --base-url http://localhost:8000/v1 --tasks builtin --turns 3 --out runs/qwen3

  drkernel bench --model openai:NAME --tasks kernelbench:KernelBench/level2 --samples 4 prices.prompt=1.25
  prices.completion=10 budget.dollars=5

Keys [default]:

{terms.keys_help("bench")}
"""


@app.command(help=HELP, context_settings=terms.FREE_FORM)
@spread
def bench(
    context: typer.Context,
    out: Annotated[Path | None, typer.Option(help="run directory (default: runs/bench-MODEL)")] = None,
    graders: Annotated[Graders, Fields("slots", "pool", "total_memory_gib")] = Graders(),
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON and nothing else")] = False,
) -> None:
    """Parse, run, print."""
    from drkernel.config import ConfigError
    from drkernel.solve.bench import BenchRun, Resolved

    terms.one_thread()
    try:
        given = terms.parse(context.args)
        if given.others:
            raise ConfigError(f"{given.others[0]!r} is neither a key nor a file of terms (.yaml)")
        config = terms.load("bench", given)
        graders.check()
        client = terms.open_answerer(config)
        directory = out or Path("runs") / ("bench-" + _slug(config.model))
        prompts = config.episode.texts()
        prepared = _kept_tasks(directory, config) or _prepare(config, quiet=as_json)
        terms.announce(config, quiet=as_json)
        resolved = Resolved(
            model=client.name, tasks_hash=prepared.hash, left_out=prepared.left_out, prompts_version=prompts.version
        )
        with BenchRun(directory, config, resolved, prepared.tasks, prompts) as run:
            summary = _run(run, terms.open_meter(config, client, directory), graders, quiet=as_json)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(130) from None
    terms.write_page(directory)
    if as_json:
        print(json.dumps(summary))
    else:
        show(summary, run.bench, directory)
    raise SystemExit(0 if not summary["incomplete"] else 1)


def _slug(model: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in model.partition(":")[2]).strip("-.")[-60:]


def _kept_tasks(directory: Path, config: BenchConfig) -> PreparedTasks | None:
    """Return the tasks that an earlier start of the same run prepared."""
    from drkernel.solve.bench import read_bench
    from drkernel.solve.config import PreparedTasks

    if not (directory / "config.yaml").is_file():
        return None
    old = read_bench(directory)
    if (old.config.tasks, old.config.choose) != (config.tasks, config.choose):
        return None
    return PreparedTasks(old.tasks, dict(old.resolved.left_out))


def _prepare(config: BenchConfig, quiet: bool) -> PreparedTasks:
    from drkernel.config import ConfigError
    from drkernel.solve.config import choose, prepare

    tasks = terms.tracked(choose(config.tasks, config.choose), "preparing tasks", quiet)
    keep = config.choose.ill_conditioned
    prepared = prepare(tasks, profile=config.episode.settings.profile, keep_ill_conditioned=keep)
    if not prepared.tasks:
        first = next(iter(prepared.left_out.items()), ("", ""))
        raise ConfigError(f"no task can be judged here; the first, {first[0]}: {first[1]}")
    return prepared


def _run(run: BenchRun, meter: Meter, graders: Graders, quiet: bool) -> dict[str, Any]:
    """Run with a progress line; Ctrl-C leaves a summary of the results so far."""
    from drkernel.gym.pools.local import LocalPool

    async def play() -> dict[str, Any]:
        try:
            async with graders.grading() as pool:
                # enough turns under way that both the model and the judges are busy
                at_once = meter.limits.concurrency + (2 * pool.slots if isinstance(pool, LocalPool) else 64)
                with LiveBench(run, meter, quiet=quiet) as live:
                    return await run.run(meter, pool, at_once=at_once, progress=live)
        finally:
            await meter.close()

    try:
        return asyncio.run(play())
    except KeyboardInterrupt:
        run.finish()
        terms.write_page(run.directory)
        raise
