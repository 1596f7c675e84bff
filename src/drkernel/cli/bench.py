"""``drkernel bench``: how good is a model at kernels."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drkernel.cli import model_options as options
from drkernel.cli.pools import POOL_HELP, check_pool, http_pool

if TYPE_CHECKING:
    from drkernel.episode.meter import Meter
    from drkernel.solve.bench import BenchConfig, BenchRun
    from drkernel.solve.prepare import Prepared

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

HELP = """Benchmark a model: every task, several samples, several turns, graded by the judge.

Answers are written as they come; the same command goes on where it was stopped, even by kill -9, and asks for no
answer twice. Results are in DIR/summary.json and DIR/report.html.

Exit codes: 0 every trajectory is complete, 1 some are not (the same command tries them again), 2 wrong usage,
130 interrupted.

Examples:

  drkernel bench --model openai:qwen3-8b --base-url http://localhost:8000/v1 --tasks builtin --turns 3 --out runs/qwen3

  drkernel bench --model openai:NAME --tasks kernelbench:KernelBench/level2 --samples 4 --price-in 1.25 --price-out 10
"""


@app.command(help=HELP)
def bench(
    model: options.Model,
    tasks: Annotated[
        str, typer.Option(help="builtin, builtin/levelN, kernelbench:DIR, parquet:FILE, jsonl:FILE, file:PATH")
    ] = "builtin",
    out: Annotated[Path | None, typer.Option(help="run directory (default: runs/bench-MODEL)")] = None,
    samples: Annotated[int, typer.Option(min=1, help="trajectories a task")] = 1,
    turns: Annotated[int, typer.Option(min=1, help="answers a trajectory")] = 3,
    keep: Annotated[int | None, typer.Option(help="context management: best turns kept before an iteration")] = None,
    turns_per_iteration: Annotated[int, typer.Option(min=1, help="turns between two cuts, with --keep")] = 5,
    breadth: Annotated[int, typer.Option(min=1, help="answers a turn; the best goes on")] = 1,
    context_tokens: Annotated[
        int | None, typer.Option(help="the conversation and its answer never exceed this")
    ] = None,
    level: Annotated[int | None, typer.Option(help="only tasks of this level")] = None,
    tag: Annotated[str | None, typer.Option(help="only tasks with this tag")] = None,
    match: Annotated[str | None, typer.Option(help="only tasks whose id contains this text")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="so many tasks, evenly from the list")] = None,
    precision: Annotated[str | None, typer.Option(help="declared precision of foreign tasks")] = None,
    scale: Annotated[
        str | None, typer.Option(help="shrink foreign tasks: tiny, small or full (sim: tiny, else small)")
    ] = None,
    all_tasks: Annotated[
        bool, typer.Option("--all-tasks", help="keep tasks that the gate finds ill-conditioned")
    ] = False,
    device: Annotated[str, typer.Option(help="'sim:GPU' models time without a GPU, 'cuda:N' measures")] = "sim:h200",
    baseline: Annotated[str, typer.Option(help="what speedup is against: eager or compile")] = "eager",
    profile: Annotated[str | None, typer.Option(help="size profile of built-in tasks (sim: tiny, cuda: full)")] = None,
    checks: Annotated[int, typer.Option(min=1, help="calls on fresh inputs that must be right")] = 3,
    deadline: Annotated[float, typer.Option(help="seconds until a candidate is stopped")] = 60.0,
    judge_seed: Annotated[int | None, typer.Option(help="repeatable verdicts (default: secret seeds)")] = None,
    prompts: options.PromptSet = "full",
    base_url: options.BaseUrl = None,
    model_name: options.ModelName = None,
    key_env: options.KeyEnv = None,
    temperature: options.Temperature = 1.0,
    top_p: options.TopP = None,
    max_tokens: options.MaxTokens = 8192,
    seed: options.Seed = None,
    extra: options.Extra = None,
    concurrency: options.Concurrency = 8,
    rpm: options.Rpm = None,
    tpm: options.Tpm = None,
    tries: options.Tries = 6,
    timeout: options.Timeout = 120.0,
    price_in: options.PriceIn = None,
    price_out: options.PriceOut = None,
    price_cached: options.PriceCached = None,
    budget_tokens: options.BudgetTokens = None,
    budget_dollars: options.BudgetDollars = None,
    budget_minutes: options.BudgetMinutes = None,
    cache: options.Cache = None,
    slots: Annotated[int | None, typer.Option(min=1, help="evaluations at once (default: one a core)")] = None,
    pool: Annotated[str | None, typer.Option(help=POOL_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON and nothing else")] = False,
) -> None:
    """Parse, run, print."""
    from pydantic import ValidationError

    from drkernel.config import ConfigError
    from drkernel.episode.meter import Budget, Limits
    from drkernel.episode.renderer import Prompts
    from drkernel.gym.request import EvalSettings
    from drkernel.solve.bench import BenchConfig, BenchRun
    from drkernel.solve.open_model import open_model
    from drkernel.solve.refine import ContextConfig, RefineConfig

    options.one_thread()
    spec = _describe(tasks, level=level, tag=tag, match=match, limit=limit, precision=precision, scale=scale,
                     all_tasks=all_tasks or None)  # fmt: skip
    try:
        check_pool(pool)
        sampling = options.make_sampling(temperature, top_p, max_tokens, seed, extra)
        client = open_model(model, base_url=base_url, key_env=key_env, sampling=sampling, timeout=timeout)
        client.name = model_name or client.name
        directory = out or Path("runs") / ("bench-" + _slug(model))
        texts = Prompts.load(prompts)
        prepared = _kept_tasks(directory, spec)
        sized = options.default_profile(device, profile)
        if prepared is None:
            prepared = _prepare(
                dict(spec=tasks, precision=precision, level=level, tag=tag, match=match, limit=limit),
                dict(device=device, profile=sized, scale=scale, keep_ill_conditioned=all_tasks),
                quiet=as_json,
            )  # fmt: skip
        settings = EvalSettings.model_validate(
            dict(device=device, baseline=baseline, profile=sized, checks=checks, deadline_s=deadline)
        )
        refine = RefineConfig(
            turns=turns, breadth=breadth, settings=settings, sampling=sampling,
            context=ContextConfig(keep=keep, turns_per_iteration=turns_per_iteration, max_tokens=context_tokens),
        )  # fmt: skip
        config = BenchConfig(
            model=client.name, tasks=spec, tasks_hash=prepared.hash, left_out=prepared.left_out, samples=samples,
            refine=refine, prompts=texts.name, prompts_version=texts.version, judge_seed=judge_seed,
            prices=options.make_prices(price_in, price_out, price_cached),
        )  # fmt: skip
        limits = Limits(concurrency=concurrency, requests_per_minute=rpm, tokens_per_minute=tpm, tries=tries)
        budget = Budget(tokens=budget_tokens, dollars=budget_dollars, minutes=budget_minutes)
        with BenchRun(directory, config, prepared.tasks, texts) as run:
            meter = options.make_meter(client, cache or directory / "replies.sqlite", limits, config.prices, budget)
            summary = _run(run, meter, slots, pool, quiet=as_json)
    except (ConfigError, ValidationError) as error:
        options.fail("bench", options.plain(error))
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        raise SystemExit(130) from None
    from drkernel.report.bench import write_bench_report

    write_bench_report(directory)
    if as_json:
        print(json.dumps(summary))
    else:
        from drkernel.cli.bench_view import show

        show(summary, config, prepared, directory)
    raise SystemExit(0 if not summary["incomplete"] else 1)


def _describe(tasks: str, **filters: Any) -> str:
    """The task spec and its filters as one text, which decides whether kept tasks are the ones that are asked for."""
    return " ".join([tasks, *(f"{name}={value}" for name, value in filters.items() if value is not None)])


def _slug(model: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in model.partition(":")[2]).strip("-.")[-60:]


def _kept_tasks(directory: Path, spec: str) -> Prepared | None:
    """The tasks that an earlier start of the same run prepared."""
    from drkernel.config import load_config
    from drkernel.episode.journal import read_rows
    from drkernel.solve.bench import BenchConfig
    from drkernel.solve.prepare import Prepared
    from drkernel.task import Task

    path = directory / "config.yaml"
    if not path.is_file():
        return None
    config: BenchConfig = load_config(BenchConfig, path)
    if config.tasks != spec:
        return None
    tasks = [Task.model_validate(row) for row in read_rows(directory / "tasks.jsonl")]
    return Prepared(tasks, dict(config.left_out))


def _prepare(chosen: dict[str, Any], terms: dict[str, Any], quiet: bool) -> Prepared:
    from rich.console import Console
    from rich.progress import Progress

    from drkernel.config import ConfigError
    from drkernel.solve.prepare import choose, prepare

    tasks = choose(**chosen)
    console = Console(stderr=True)
    with Progress(console=console, disable=quiet or not sys.stderr.isatty(), transient=True) as bar:
        line = bar.add_task("preparing tasks", total=len(tasks))
        prepared = prepare(tasks, **terms, progress=lambda done, total: bar.update(line, completed=done))
    if not prepared.tasks:
        first = next(iter(prepared.left_out.items()), ("", ""))
        raise ConfigError(f"no task can be judged here; the first, {first[0]}: {first[1]}")
    return prepared


def _run(run: BenchRun, meter: Meter, slots: int | None, pool_url: str | None, quiet: bool) -> dict[str, Any]:
    """The run with a progress line; Ctrl-C leaves a summary of what is there."""
    from drkernel.cli.bench_view import LiveBench
    from drkernel.gym.pools.local import LocalPool

    async def play() -> dict[str, Any]:
        pool = LocalPool(slots=slots) if pool_url is None else http_pool(pool_url)
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
