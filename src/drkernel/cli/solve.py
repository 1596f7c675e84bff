"""``drkernel solve REFERENCE``: more turns, a better kernel."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drkernel.cli import model_options as options
from drkernel.cli.pools import POOL_HELP, check_pool, http_pool

if TYPE_CHECKING:
    from drkernel.episode.meter import Meter
    from drkernel.gym.request import Pool
    from drkernel.solve.bench import BenchRun
    from drkernel.solve.verify import Verified
    from drkernel.task import Task

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

HELP = """Find a fast kernel for a reference module: ask a model, grade, tell it what the grader saw, ask again.

REFERENCE is a file in KernelBench's format (Model, get_inputs, get_init_inputs) or a built-in task such as
builtin/level1/softmax. After every --turns-per-iteration turns the conversation is cut to the best --keep turns by
reward; --keep all never cuts. At the end, or on Ctrl-C, the best kernel is graded again from scratch and written to a
file that runs by itself, beside a page that shows how it was found. The same command goes on where it was stopped.

Exit codes: 0 a verified kernel was written, 1 none was found, 2 wrong usage.

Examples:

  drkernel solve reference.py --model openai:NAME --turns 14 --target 2

  drkernel solve builtin/level2/linear_bias_gelu --model command:./my_model --breadth 4
"""


@app.command(help=HELP)
def solve(
    reference: Annotated[str, typer.Argument(help="a reference file, or the id of a built-in task")],
    model: options.Model,
    out: Annotated[Path | None, typer.Option(help="run directory (default: runs/solve-NAME)")] = None,
    save: Annotated[Path | None, typer.Option(help="where the kernel goes (default: best.py in the run)")] = None,
    turns: Annotated[int, typer.Option(min=1, help="answers in a row")] = 10,
    keep: Annotated[str, typer.Option(help="best earlier turns kept before an iteration, or 'all'")] = "4",
    turns_per_iteration: Annotated[int, typer.Option(min=1, help="turns between two cuts of the conversation")] = 5,
    breadth: Annotated[int, typer.Option(min=1, help="answers a turn; the best goes on")] = 1,
    target: Annotated[float | None, typer.Option(help="stop at this speedup")] = None,
    context_tokens: Annotated[
        int | None, typer.Option(help="the conversation and its answer never exceed this")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="declared precision of the reference (default: fp32)")] = None,
    scale: Annotated[
        str | None, typer.Option(help="shrink the reference first: tiny, small or full (sim: small)")
    ] = None,
    device: Annotated[str, typer.Option(help="'sim:GPU' models time without a GPU, 'cuda:N' measures")] = "sim:h200",
    baseline: Annotated[str, typer.Option(help="what speedup is against: eager or compile")] = "eager",
    profile: Annotated[str | None, typer.Option(help="size profile of a built-in task (sim: tiny, cuda: full)")] = None,
    checks: Annotated[int, typer.Option(min=1, help="calls on fresh inputs that must be right")] = 3,
    deadline: Annotated[float, typer.Option(help="seconds until a candidate is stopped")] = 60.0,
    pool: Annotated[str | None, typer.Option(help=POOL_HELP)] = None,
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
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON and nothing else")] = False,
) -> None:
    """Parse, search, verify, print."""
    from pydantic import ValidationError

    from drkernel.config import ConfigError
    from drkernel.episode.meter import Budget, Limits
    from drkernel.episode.renderer import Prompts
    from drkernel.gym.request import EvalSettings
    from drkernel.solve.bench import BenchConfig, BenchRun
    from drkernel.solve.open_model import open_model
    from drkernel.solve.prepare import tasks_hash
    from drkernel.solve.refine import ContextConfig, RefineConfig

    options.one_thread()
    try:
        check_pool(pool)
        sampling = options.make_sampling(temperature, top_p, max_tokens, seed, extra)
        client = open_model(model, base_url=base_url, key_env=key_env, sampling=sampling, timeout=timeout)
        client.name = model_name or client.name
        sized = options.default_profile(device, profile)
        task = _task(reference, precision, device, sized, scale)
        texts = Prompts.load(prompts)
        settings = EvalSettings.model_validate(
            dict(device=device, baseline=baseline, profile=sized, checks=checks, deadline_s=deadline)
        )
        context = dict(keep=None if keep == "all" else keep, turns_per_iteration=turns_per_iteration)
        refine = RefineConfig(
            turns=turns, breadth=breadth, target=target, settings=settings, sampling=sampling, infra="skip",
            context=ContextConfig.model_validate({**context, "max_tokens": context_tokens}),
        )  # fmt: skip
        config = BenchConfig(
            kind="solve", model=client.name, tasks=reference, tasks_hash=tasks_hash([task]), refine=refine,
            prompts=texts.name, prompts_version=texts.version,
            prices=options.make_prices(price_in, price_out, price_cached),
        )  # fmt: skip
        limits = Limits(concurrency=concurrency, requests_per_minute=rpm, tokens_per_minute=tpm, tries=tries)
        budget = Budget(tokens=budget_tokens, dollars=budget_dollars, minutes=budget_minutes)
        directory = out or Path("runs") / ("solve-" + task.id.rpartition("/")[2])
        with BenchRun(directory, config, [task], texts) as run:
            meter = options.make_meter(client, cache or directory / "replies.sqlite", limits, config.prices, budget)
            result = _search_and_settle(run, task, meter, save, pool, quiet=as_json)
    except (ConfigError, ValidationError) as error:
        options.fail("solve", options.plain(error))
    if as_json:
        print(json.dumps(result))
    raise SystemExit(0 if result["verified"] else 1)


def _task(reference: str, precision: str | None, device: str, profile: str | None, scale: str | None) -> Task:
    """The task, shrunk where a simulated GPU could not hold it. What the gate has against it is only said."""
    from drkernel.config import ConfigError
    from drkernel.gym.device import parse_device
    from drkernel.solve.prepare import choose, prepare

    builtin = reference.startswith("builtin")
    tasks = choose(reference if builtin else f"file:{reference}", precision=precision)  # type: ignore[arg-type]
    if len(tasks) > 1:
        raise ConfigError(f"{reference} names {len(tasks)} tasks; solve takes one")
    if not builtin and Path(reference).stem == "reference":  # the folder's name says more
        tasks = [tasks[0].model_copy(update={"id": f"file/{Path(reference).resolve().parent.name}"})]
    if parse_device(device).simulated and scale is None:
        scale = "small"
    prepared = prepare(tasks, device=device, profile=profile, scale=scale, keep_ill_conditioned=True)
    if not prepared.tasks:
        raise ConfigError(f"{reference} cannot be graded: {next(iter(prepared.left_out.values()))}")
    for name, (old, new) in prepared.tasks[0].provenance.scaled.items():
        print(f"shrunk to fit {device}: {name} {old} -> {new} (--scale full keeps more)", file=sys.stderr)
    return prepared.tasks[0]


def _search_and_settle(
    run: BenchRun, task: Task, meter: Meter, save: Path | None, pool_url: str | None, quiet: bool
) -> dict[str, Any]:
    """Search until the end or Ctrl-C, then verify and write; a second Ctrl-C leaves the best unverified."""
    from drkernel.cli.solve_view import LiveSolve, show
    from drkernel.gym.pools.local import LocalPool

    with ExitStack() as stack:
        local = stack.enter_context(LocalPool()) if pool_url is None else None
        view = LiveSolve(run, meter, quiet=quiet)
        try:
            asyncio.run(_search(run, meter, _graders(local, pool_url), view))
        except KeyboardInterrupt:
            print("stopped; verifying the best so far (Ctrl-C again to leave it unverified)", file=sys.stderr)
        run.finish()
        try:
            tried, left = asyncio.run(_verify(run, task, _graders(local, pool_url))), False
        except KeyboardInterrupt:
            tried, left = [], True
    result = _write(run, task, tried, save)
    if left:
        result["unverified"] = _write_unverified(run, task)
    if not quiet:
        show(result, tried)
    return result


@asynccontextmanager
async def _graders(local: Pool | None, url: str | None) -> AsyncIterator[Pool]:
    """The pool of this machine, or a connection to the service for as long as the present event loop lives."""
    if local is not None:
        yield local
        return
    assert url is not None
    pool = http_pool(url)
    try:
        yield pool
    finally:
        await pool.close()


async def _search(run: BenchRun, meter: Meter, graders: AbstractAsyncContextManager[Pool], view: Any) -> None:
    try:
        async with graders as pool:
            with view:
                await run.run(meter, pool, progress=view)
    finally:
        await meter.close()


async def _verify(run: BenchRun, task: Task, graders: AbstractAsyncContextManager[Pool]) -> list[Verified]:
    from drkernel.solve.verify import verify

    async with graders as pool:
        return await verify(task, run.state.turns((task.id, 0)), run.config.refine.settings, pool)


def _write_unverified(run: BenchRun, task: Task) -> str | None:
    """The fastest correct attempt as ``unverified.py``, for a search whose verification was not waited for."""
    from drkernel.solve.verify import Verified, by_speed, write_candidate

    attempts = run.state.turns((task.id, 0))
    fastest = by_speed(attempts)[:1]
    if not fastest:
        return None
    path = run.directory / "unverified.py"
    found = Verified(fastest[0], fastest[0].verdict)
    text = write_candidate(task, found, run.config.refine.settings, run.config.model, len(attempts), verified=False)
    path.write_text(text, encoding="utf-8")
    return str(path)


def _write(run: BenchRun, task: Task, tried: list[Verified], save: Path | None) -> dict[str, Any]:
    """``best.py``, ``result.json`` and the page."""
    from drkernel.episode.chat import Usage
    from drkernel.report.solve import write_solve_report
    from drkernel.solve.verify import winner, write_candidate

    attempts = run.state.turns((task.id, 0))
    ended = run.state.ended.get((task.id, 0))
    usage = sum((attempt.reply.usage for attempt in attempts), Usage())
    prices = run.config.prices
    best = winner(tried)
    path = save or run.directory / "best.py"
    result: dict[str, Any] = {
        "task": task.id,
        "model": run.config.model,
        "attempts": len(attempts),
        "ended_by": "interrupted" if ended is None else ended.end,
        "tokens": usage.total,
        "dollars": None if prices is None else prices.cost(usage),
        "verified": best is not None,
        "speedup": None if best is None else best.speedup,
        "timing_kind": run.config.refine.settings.place.timing,
        "device": run.config.refine.settings.device,
        "file": None if best is None else str(path),
        "found_at_turn": None if best is None else best.attempt.turn,
        "did_not_hold_up": [one.attempt.position for one in tried if not one.verdict.is_correct],
    }
    if best is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = write_candidate(task, best, run.config.refine.settings, run.config.model, len(attempts))
        path.write_text(text, encoding="utf-8")
    (run.directory / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    result["report"] = str(write_solve_report(run.directory, tried))
    return result
