"""``drkernel coldstart --out FILE``: verified trajectories for supervised fine-tuning."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drkernel.cli.terms import grading
from drkernel.view import counts

if TYPE_CHECKING:
    from drkernel.episode.meter import Meter
    from drkernel.episode.records import Sampling
    from drkernel.rl.data.coldstart import ColdstartConfig, ColdstartSummary

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

HELP = """Write multi-turn trajectories of a teacher, every turn graded by the real judge, as JSON lines.

The teacher is a program that can write kernels for the generated tasks, or (--source) any chat model, whose
trajectories are kept up to the best correct turn. Running the same command again resumes an interrupted run.

Exit codes: 0 written, 1 nothing could be kept or the model failed, 2 wrong usage, 130 interrupted.

Examples:

  drkernel coldstart --out data/cold.jsonl --tasks 480

  drkernel coldstart --out data/cold.jsonl --tasks 8000 --turns 3 --seed 1 --json

  drkernel coldstart --out data/teacher.jsonl --source openai:NAME --base-url http://localhost:8000/v1 --turns 3
"""


@app.command(help=HELP)
def coldstart(
    out: Annotated[Path, typer.Option(help="the file to write; resumed if it exists")],
    tasks: Annotated[int, typer.Option(min=1, help="generated tasks, one trajectory each")] = 480,
    turns: Annotated[int, typer.Option(min=1, help="answers per trajectory")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="seed of tasks and answers")] = 0,
    device: Annotated[str, typer.Option(help="'sim:GPU' models time without a GPU, 'cuda:N' measures")] = "sim:h200",
    source: Annotated[str, typer.Option(help="program, or a model: openai:NAME, command:PROGRAM, ...")] = "program",
    prompts: Annotated[str, typer.Option(help="compact or full (default: compact, full for a model)")] = "",
    base_url: Annotated[str | None, typer.Option(help="of a model: an OpenAI-compatible endpoint")] = None,
    key_env: Annotated[str | None, typer.Option(help="of a model: variable with the key (OPENAI_API_KEY)")] = None,
    temperature: Annotated[float, typer.Option(min=0, help="of a model's answers")] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="token budget of one answer")] = 8192,
    concurrency: Annotated[int, typer.Option(min=1, help="requests to a model at once")] = 8,
    slots: Annotated[int | None, typer.Option(min=1, help="concurrent evaluations; default: one per core")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON and nothing else")] = False,
) -> None:
    """Parse, write, print."""
    from drkernel.config import load_config
    from drkernel.episode.records import Sampling
    from drkernel.rl.data.coldstart import ColdstartConfig

    chosen = prompts or ("compact" if source == "program" else "full")
    try:
        config = load_config(
            ColdstartConfig,
            base={
                "tasks": tasks,
                "seed": seed,
                "episode": {"turns": turns, "prompts": chosen, "settings": {"device": device}},
                "concurrency": 2 * (slots or 2) if source == "program" else concurrency + 2 * (slots or 2),
            },
        )
        meter = None
        if source != "program":
            sampling = Sampling(temperature=temperature, max_tokens=max_tokens, seed=seed)
            meter = _open(source, base_url, key_env, sampling, concurrency, out)
            config = config.model_copy(update={"source": meter.name, "sampling": sampling})
        summary = asyncio.run(_write(config, out, slots, meter, quiet=as_json))
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(130) from None
    except RuntimeError as error:  # the model gave no answer: what is written stays, and the same command goes on
        print(f"drkernel coldstart: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    if as_json:
        print(json.dumps(summary.model_dump()))
    else:
        print(f"{out}: {summary.trajectories} trajectories, {summary.turns} turns")
        print("  by plan:   " + counts(summary.by_plan))
        print("  by status: " + counts(summary.by_status))
        if summary.dropped:
            print("  left out:  " + counts(summary.dropped))
    raise SystemExit(0 if summary.trajectories else 1)


def _open(
    source: str, base_url: str | None, key_env: str | None, sampling: Sampling, concurrency: int, out: Path
) -> Meter:
    """Open the model, caching its replies beside the data so that none is paid for twice."""
    from drkernel.episode.meter import CallLimits, Meter, ReplyCache
    from drkernel.solve.config import open_model

    client = open_model(source, base_url=base_url, key_env=key_env, sampling=sampling)
    cache = ReplyCache(out.with_name(out.name + ".replies.sqlite"))
    return Meter(client, cache=cache, limits=CallLimits(concurrency=concurrency))


async def _write(
    config: ColdstartConfig, out: Path, slots: int | None, meter: Meter | None, quiet: bool
) -> ColdstartSummary:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from drkernel.rl.data.coldstart import write_coldstart

    columns = (TextColumn("trajectories"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, disable=quiet or not sys.stderr.isatty()) as bar:
            line = bar.add_task("", total=config.tasks)
            async with grading(None, slots=slots) as pool:
                return await write_coldstart(
                    config, pool, out, lambda done, total, counts: bar.update(line, completed=done, total=total), meter
                )
    finally:
        if meter is not None:
            await meter.close()
