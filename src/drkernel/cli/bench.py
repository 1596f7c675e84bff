"""``drkernel bench``: measure how good a model is at writing kernels."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drkernel.cli import terms
from drkernel.cli.pools import POOL_HELP, TOTAL_HELP, check_pool, http_pool, to_bytes

if TYPE_CHECKING:
    from drkernel.episode.meter import Meter
    from drkernel.gym.request import Pool
    from drkernel.solve.bench import BenchRun
    from drkernel.solve.config import BenchConfig
    from drkernel.solve.prepare import PreparedTasks

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

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
def bench(
    context: typer.Context,
    out: Annotated[Path | None, typer.Option(help="run directory (default: runs/bench-MODEL)")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="evaluations at once (default: one a core)")] = None,
    pool: Annotated[str | None, typer.Option(help=POOL_HELP)] = None,
    total_memory_gib: Annotated[float | None, typer.Option(min=0.1, help=TOTAL_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON and nothing else")] = False,
) -> None:
    """Parse, run, print."""
    from drkernel.config import ConfigError
    from drkernel.solve.bench import BenchRun, Resolved

    terms.one_thread()
    try:
        check_pool(pool)
        given = terms.parse(context.args)
        if given.others:
            raise ConfigError(f"{given.others[0]!r} is neither a key nor a file of terms (.yaml)")
        config = terms.load("bench", given)
        client = terms.open_answerer(config)
        directory = out or Path("runs") / ("bench-" + _slug(config.model))
        prompts = config.episode.texts()
        prepared = _kept_tasks(directory, config) or _prepare(config, quiet=as_json)
        terms.announce(config, quiet=as_json)
        resolved = Resolved(
            model=client.name, tasks_hash=prepared.hash, left_out=prepared.left_out, prompts_version=prompts.version
        )

        def open_pool() -> Pool:
            from drkernel.gym.pools.local import LocalPool

            return LocalPool(slots, total_bytes=to_bytes(total_memory_gib)) if pool is None else http_pool(pool)

        with BenchRun(directory, config, resolved, prepared.tasks, prompts) as run:
            summary = _run(run, terms.open_meter(config, client, directory), open_pool, quiet=as_json)
    except ConfigError as error:
        terms.fail("bench", str(error))
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(130) from None
    from drkernel.report.bench import write_bench_report

    write_bench_report(directory)
    if as_json:
        print(json.dumps(summary))
    else:
        from drkernel.cli.bench_view import show

        show(summary, run.bench, directory)
    raise SystemExit(0 if not summary["incomplete"] else 1)


def _slug(model: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in model.partition(":")[2]).strip("-.")[-60:]


def _kept_tasks(directory: Path, config: BenchConfig) -> PreparedTasks | None:
    """Return the tasks that an earlier start of the same run prepared."""
    from drkernel.episode.journal import read_rows
    from drkernel.solve.bench import read_terms
    from drkernel.solve.prepare import PreparedTasks
    from drkernel.task import Task

    if not (directory / "config.yaml").is_file():
        return None
    old, resolved = read_terms(directory)
    if (old.tasks, old.choose) != (config.tasks, config.choose):
        return None
    tasks = [Task.model_validate(row) for row in read_rows(directory / "tasks.jsonl")]
    return PreparedTasks(tasks, dict(resolved.left_out))


def _prepare(config: BenchConfig, quiet: bool) -> PreparedTasks:
    from rich.console import Console
    from rich.progress import Progress

    from drkernel.config import ConfigError
    from drkernel.solve.prepare import choose, prepare

    tasks = choose(config.tasks, config.choose)
    with Progress(console=Console(stderr=True), disable=quiet or not sys.stderr.isatty(), transient=True) as bar:
        line = bar.add_task("preparing tasks", total=len(tasks))
        prepared = prepare(
            tasks,
            profile=config.episode.settings.profile,
            keep_ill_conditioned=config.choose.ill_conditioned,
            progress=lambda done, total: bar.update(line, completed=done),
        )
    if not prepared.tasks:
        first = next(iter(prepared.left_out.items()), ("", ""))
        raise ConfigError(f"no task can be judged here; the first, {first[0]}: {first[1]}")
    return prepared


def _run(run: BenchRun, meter: Meter, open_pool: Callable[[], Pool], quiet: bool) -> dict[str, Any]:
    """Run with a progress line; Ctrl-C leaves a summary of the results so far."""
    from drkernel.cli.bench_view import LiveBench
    from drkernel.gym.pools.local import LocalPool

    async def play() -> dict[str, Any]:
        pool = open_pool()
        # enough turns under way that both the model and the judges are busy
        at_once = meter.limits.concurrency + (2 * pool.slots if isinstance(pool, LocalPool) else 64)
        try:
            with LiveBench(run, meter, quiet=quiet) as live:
                return await run.run(meter, pool, at_once=at_once, progress=live)
        finally:
            await pool.close()
            await meter.close()

    try:
        return asyncio.run(play())
    except KeyboardInterrupt:
        run.finish()
        raise
